"""Which labs somebody means: "00-03,5,1cuda"."""
import re


def parse_labs(text, known):
    """The labs of "00-03,5,1cuda", in order. ValueError, in one line, if one is not in `known`.

    A range has the labs with these numbers. The CUDA part of a lab is meant only where it is named.
    """
    order = sorted(known)

    def named(word):
        found = re.fullmatch(r"(\d{1,2})(cuda)?", word.strip())
        name = f"{int(found[1]):02}{found[2] or ''}" if found else word
        if name not in order:
            raise ValueError(f"there is no lab '{word.strip()}'; the labs are {' '.join(order)}")
        return name

    chosen = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin = named(first)
        if not dash:
            chosen.add(begin)
            continue
        end = named(last)
        if end < begin:
            raise ValueError(f"'{part.strip()}' ends before it begins")
        chosen.update(lab for lab in order if begin <= lab <= end and (lab.isdigit() or lab in (begin, end)))
    return sorted(chosen)
