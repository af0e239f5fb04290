#!/usr/bin/env python3
"""Write data/stories.txt, a corpus of short children's stories, from hand-written material.

The material lies in data/corpus/*.txt and is described in data/corpus/README.md: plots made of
beats, shared rules, and tables of names, animals, things and places.  This file is only the
machinery: it reads the material, casts each story, expands its beats, and keeps what passes.

    python3 data/make_corpus.py            write data/stories.txt
    python3 data/make_corpus.py --check    verify that the shipped file is what this writes
    python3 data/make_corpus.py --show 5   print five stories and their plots, write nothing

The output depends on nothing but the material and the constants below: the random numbers come
from a generator of our own, and no set or hash order is ever looked at.
"""

import argparse
import glob
import hashlib
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MATERIAL = os.path.join(HERE, "corpus")
OUTPUT = os.path.join(HERE, "stories.txt")
END = "<|endoftext|>"

SEED = 20240229
STORIES = 4000          # how many stories to write
TAIL = 200              # so many at the end may also use the plots marked "tail: yes"
MIN_WORDS, MAX_WORDS = 80, 230
LONG_SENTENCE = 5       # a sentence of at least so many words ...
MAX_LONG = 20           # ... occurs at most so often (names taken out);
MAX_SHORT = 150         # a shorter one so often
TRIES = 20              # attempts at a plot before another plot has its turn
MIN_BYTES, MAX_BYTES = 3000000, 4000000


REPEATABLE = ("noise", "sound")     # fields that may give the same phrase twice in a story


class MaterialError(Exception):
    """Something in data/corpus/*.txt cannot be read or expanded."""


class Reject(Exception):
    """This attempt at a story is not good enough; try another."""


class Dice:
    """A small random generator (splitmix64), the same on every machine and Python version."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = seed & self.MASK

    def below(self, n):
        """Return an integer from 0 to n - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        z ^= z >> 31
        return (z >> 11) % n

    def chance(self, percent):
        """Return True in so many cases out of a hundred."""
        return self.below(100) < percent

    def pick(self, items):
        """Return one of the items."""
        return items[self.below(len(items))]

    def shuffled(self, items):
        """Return the items in a random order."""
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


# ---------------------------------------------------------------------------------------------
# Reading the material
# ---------------------------------------------------------------------------------------------

class Alt:
    """One way to tell a beat or a rule: its text, and the conditions under which it fits."""

    def __init__(self, text, conditions):
        self.text = text
        self.conditions = conditions
        self.used = 0


class Beat:
    """One step of a plot: alternatives, whether it may be left out, whether it opens a line."""

    def __init__(self, optional, paragraph):
        self.optional = optional
        self.paragraph = paragraph
        self.alts = []


class Block:
    """One '== type: name' block of the material, with its fields, alternatives and beats."""

    def __init__(self, kind, name, where):
        self.kind, self.name, self.where = kind, name, where
        self.fields = {}
        self.alts = []
        self.beats = []

    def values(self, field):
        """Return the list of values of a field written 'field: one; two; three'."""
        return [v.strip() for v in self.fields.get(field, "").split(";") if v.strip()]


def logical_lines(path):
    """Yield (line number, text) with comments dropped and indented lines joined on."""
    held, number = None, 0
    with open(path, encoding="utf-8") as stream:
        for count, line in enumerate(stream, 1):
            line = line.rstrip()
            if line.startswith("#") or not line:
                continue
            if line[0] == " " and held is not None:
                held += " " + line.strip()
                continue
            if held is not None:
                yield number, held
            held, number = line, count
    if held is not None:
        yield number, held


def make_alt(text):
    """Read an alternative: optional 'if a=b,c!=d:' conditions and then the text."""
    conditions = []
    match = re.match(r"if ([^:]+): *(.*)$", text)
    if match:
        for part in match.group(1).split(","):
            key, wanted = re.match(r"(\S+?)(!?=.*)$", part.strip()).groups()
            conditions.append((key, wanted.startswith("!"), wanted.lstrip("!=").split("/")))
        text = match.group(2)
    return Alt(text, conditions)


def swap_patterns(blocks):
    """Return (pattern, {wording: its options}) for any text, and the same for speech only."""
    made = []
    for field in ("any", "speech"):
        options, parts = {}, []
        for block in blocks:
            after = r"(?= [a-z])" if field == "speech" else r"\b"
            if block.values("not-before"):
                after += r"(?! (?:%s)\b)" % "|".join(block.values("not-before"))
            for wording in block.values(field):
                options[wording.lower()] = block.values(field)
                parts.append((-len(wording), re.escape(wording) + after))
        pattern = r"(?<!all )\b(?:%s)" % "|".join(part for _, part in sorted(parts))
        made.append((re.compile(pattern, re.IGNORECASE), options))
    return made


def read_material(folder):
    """Read every .txt file of the folder; return {type: {name: Block}} in reading order."""
    material = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        block = None
        for number, line in logical_lines(path):
            where = "%s:%d" % (os.path.basename(path), number)
            head = re.match(r"== (\w+): (.+)$", line)
            if head:
                block = Block(head.group(1), head.group(2).strip(), where)
                family = material.setdefault(block.kind, {})
                if block.name in family:
                    raise MaterialError("%s: %s is there twice" % (where, block.name))
                family[block.name] = block
            elif block is None:
                raise MaterialError("%s: text before the first '=='" % where)
            elif line[0] in "+?/":
                block.beats.append(Beat("?" in line[:2], "/" in line[:2]))
                rest = line.lstrip("+?/").strip()
                if rest:
                    block.beats[-1].alts.append(make_alt(rest))
            elif line.startswith("- "):
                target = block.beats[-1].alts if block.beats else block.alts
                target.append(make_alt(line[2:].strip()))
            else:
                field = re.match(r"([\w-]+): *(.*)$", line)
                if not field:
                    raise MaterialError("%s: cannot read %r" % (where, line))
                block.fields[field.group(1)] = field.group(2)
    material["swap-patterns"] = swap_patterns(list(material["swap"].values()))
    return material


# ---------------------------------------------------------------------------------------------
# Casting and expanding one story
# ---------------------------------------------------------------------------------------------

PRONOUNS = {
    "he": {"he": "he", "him": "him", "his": "his", "hers": "his", "self": "himself",
           "boy": "boy", "son": "son", "man": "man"},
    "she": {"he": "she", "him": "her", "his": "her", "hers": "hers", "self": "herself",
            "boy": "girl", "son": "daughter", "man": "woman"},
    "it": {"he": "it", "him": "it", "his": "its", "hers": "its", "self": "itself",
           "boy": "one", "son": "young one", "man": "one"},
}


class Entity:
    """A member of the cast: a fixed name and attributes, and lists to pick phrases from."""

    def __init__(self, name, sex="it", fixed=None, lists=None, is_name=False):
        self.name = name
        self.fixed = dict(PRONOUNS[sex])
        self.fixed.update(fixed or {})
        self.lists = lists or {}
        self.sex = sex
        self.is_name = is_name


class Story:
    """Casts one plot and tells it.  `text()` returns the story or raises Reject."""

    def __init__(self, material, plot, dice):
        self.material, self.plot, self.dice = material, plot, dice
        self.cast, self.memory = {}, {}
        self.picked = []            # the Alts used, for counting once the story is kept
        self.said = {}              # phrases already taken from a list, by (role, field)
        self.world = ""
        for entry in plot.values("cast"):
            role, kind = entry.split()
            self.cast[role] = self.make(kind)
        for entry in plot.values("set"):
            key, value = entry.split("=", 1)
            self.memory[key] = self.dice.pick(value.split("|"))

    # -- casting ------------------------------------------------------------------------------

    def names_taken(self):
        """Return the names of the cast so far."""
        return [e.name for e in self.cast.values()]

    def taken_kinds(self):
        """Return the kinds of animal in the cast so far."""
        return [e.fixed.get("kind") for e in self.cast.values()]

    def sex_for(self, role_kind):
        """Return 'he' or 'she', for a friend mostly not the hero's, so pronouns stay clear."""
        hero = self.cast.get("h")
        if role_kind == "hero" or hero is None or hero.sex == "it":
            return self.dice.pick(["he", "she"])
        other = "she" if hero.sex == "he" else "he"
        return other if self.dice.chance(85) else hero.sex

    def fresh_name(self, table, sex):
        """Return a name for that sex which nobody in the story has, nor one that starts alike."""
        names = self.material["names"][table].values(sex)
        taken = self.names_taken()
        for _ in range(50):
            name = self.dice.pick(names)
            if all(name[:2] != other[:2] for other in taken):
                return name
        raise Reject("no name left")

    def make(self, kind):
        """Return a new cast member of that kind (see data/corpus/README.md for the kinds)."""
        if kind == "hero":
            kind = "child" if self.dice.chance(int(self.plot.fields.get("children", "58"))) \
                else "animal"
        if kind == "friend":
            kind = self.world
        if kind == "child":
            return self.make_child()
        if kind == "animal":
            return self.make_animal()
        if kind == "grownup":
            return self.make_grownup()
        if kind == "elder":
            return self.make_elder()
        return self.make_thing(kind)

    def traits(self):
        """Return the character's trait: the plot's own if it has some, else a neutral one."""
        if "h" not in self.cast and self.plot.values("trait"):
            return self.dice.pick(self.plot.values("trait"))
        return self.dice.pick(self.material["names"]["traits"].values("neutral"))

    def make_child(self):
        """Return a child with a name."""
        self.world = self.world or "child"
        sex = self.sex_for("hero" if "h" not in self.cast else "friend")
        name = self.fresh_name("children", sex)
        boy = PRONOUNS[sex]["boy"]
        return Entity(name, sex, is_name=True, fixed={
            "kind": boy, "the": "the " + boy, "trait": self.traits(), "home": "house",
            "hand": "hand", "hands": "hands", "bed": "bed", "kid": "child", "world": "child"})

    def make_animal(self):
        """Return a young animal with a name, of a kind that is not in the story yet."""
        self.world = self.world or "animal"
        block = self.dice.pick(list(self.material["animal"].values()))
        if block.name in self.taken_kinds():
            raise Reject("two of a kind")
        sex = self.sex_for("hero" if "h" not in self.cast else "friend")
        fixed = {"kind": block.name, "the": "the little " + block.name, "trait": self.traits(),
                 "kid": "little one", "world": "animal"}
        for field in ("home", "hand", "hands", "bed", "look"):
            fixed[field] = self.dice.pick(block.values(field))
        return Entity(self.fresh_name("animals", sex), sex, fixed=fixed, is_name=True)

    def make_grownup(self):
        """Return a grown-up of the hero's family, called 'his mom' and the like."""
        title, sex = self.dice.pick([("mom", "she"), ("mom", "she"), ("dad", "he"),
                                     ("dad", "he"), ("grandma", "she"), ("grandpa", "he")])
        owner = self.cast["h"].fixed["his"]
        return Entity(owner + " " + title, sex, fixed={
            "call": title.capitalize(), "kind": title, "the": owner + " " + title,
            "world": self.world})

    def make_elder(self):
        """Return an older neighbour with a name of their own."""
        sex = self.dice.pick(["he", "she"])
        if self.world == "child":
            name = self.dice.pick(self.material["names"]["elders"].values(sex))
            kind = "old " + PRONOUNS[sex]["man"]
        else:
            block = self.dice.pick(list(self.material["wise"].values()))
            if block.name in self.taken_kinds():
                raise Reject("two of a kind")
            kind = "old " + block.name
            name = self.dice.pick(block.values(sex))
        return Entity(name, sex, is_name=True, fixed={
            "kind": kind, "the": "the " + kind, "call": name, "world": self.world})

    def make_thing(self, table):
        """Return an entry of a table such as toy, food or place that fits this world."""
        if table not in self.material:
            raise MaterialError("%s: no table %s" % (self.plot.where, table))
        fitting = [b for b in self.material[table].values()
                   if b.fields.get("world", self.world) == self.world
                   and b.name not in self.names_taken()]
        wanted = self.plot.values("only-" + table)
        if wanted:
            fitting = [b for b in fitting if b.name in wanted]
        needs = self.plot.values("need-" + table)
        fitting = [b for b in fitting if all(need in b.fields for need in needs)]
        if not fitting:
            raise Reject("nothing fits")
        block = self.dice.pick(fitting)
        lists = {field: block.values(field) for field in block.fields}
        fixed = {}
        for field in ("adj", "name", "in", "to"):
            if field in lists:
                fixed[field] = self.dice.pick(lists[field])
        fixed["nice"] = (fixed["adj"] + " " if "adj" in fixed else "") + block.name
        if "she" in lists:                          # a thing with a name of its own: a vehicle
            sex = self.dice.pick(["he", "she"])
            self.world = self.world or "child"
            fixed.update({"kind": block.name, "the": "the " + block.name})
            names = [n for n in lists[sex] if n not in self.names_taken()]
            if block.name in self.taken_kinds():
                raise Reject("two of a kind")
            return Entity(self.dice.pick(names), sex, fixed, lists, is_name=True)
        return Entity(block.name, "it", fixed, lists)

    # -- expanding ----------------------------------------------------------------------------

    def fits(self, alt, env):
        """Return whether the alternative's conditions hold."""
        for key, negated, wanted in alt.conditions:
            value = self.value(key, env) if "." in key else self.memory.get(key, "")
            if (value in wanted) == negated:
                return False
        return True

    def choose(self, alts, env, where):
        """Pick an alternative that fits and is fresh in this story, favouring rarer ones."""
        fresh = [a for a in alts if a not in self.picked and self.fits(a, env)]
        if not fresh:
            raise Reject("nothing left to say in " + where)
        one, two = self.dice.pick(fresh), self.dice.pick(fresh)
        alt = one if one.used <= two.used else two
        self.picked.append(alt)
        return alt

    def value(self, name, env):
        """Return what $name or $name.field stands for."""
        role, _, field = name.partition(".")
        role = env.get(role, role)
        if not field and role in self.memory:
            return self.memory[role]
        if role not in self.cast:
            raise MaterialError("%s: who is $%s?" % (self.plot.where, name))
        entity = self.cast[role]
        if not field:
            return entity.name
        if field in entity.fixed:
            return entity.fixed[field]
        if field in entity.lists:
            told = self.said.setdefault((role, field), [])
            left = [v for v in entity.lists[field] if v not in told or field in REPEATABLE]
            if not left:
                raise Reject("no %s left" % name)
            told.append(self.dice.pick(left))
            return self.expand(told[-1], env)
        raise MaterialError("%s: $%s has no %s" % (self.plot.where, name, field))

    def expand(self, text, env):
        """Expand (a|b) choices, [key=a|b] notes, <rule who> calls and $role.field values.

        [key=a|b] only remembers the choice as $key, [key:a|b] also says it.
        """
        out, i = [], 0
        while i < len(text):
            char = text[i]
            if char in "([":
                close = matching(text, i, self.plot.where)
                inner = text[i + 1:close]
                if char == "(":
                    out.append(self.expand(self.dice.pick(split_top(inner)), env))
                else:
                    key, sign, options = re.match(r"(\w+)([=:])(.*)$", inner).groups()
                    self.memory[key] = self.expand(self.dice.pick(split_top(options)), env)
                    out.append(self.memory[key] if sign == ":" else "")
                i = close + 1
            elif char == "<":
                close = text.index(">", i)
                out.append(self.call(text[i + 1:close].split(), env))
                i = close + 1
            elif char == "$":
                name = re.match(r"\w+(\.[A-Za-z]+)?", text[i + 1:]).group(0)
                out.append(self.lookup(name, env))
                i += 1 + len(name)
            else:
                out.append(char)
                i += 1
        return "".join(out)

    def lookup(self, name, env):
        """Return $name; a capital letter in the name or field capitalises the value."""
        role, dot, field = name.partition(".")
        if role in self.memory or role in self.cast or role in env:
            capital = field[:1].isupper()
        else:
            capital = role[:1].isupper()
        low = role if (role in self.memory or role in self.cast or role in env) else role.lower()
        value = self.value(low + dot + field.lower(), env)
        return value[:1].upper() + value[1:] if capital else value

    def call(self, words, env):
        """Expand a shared rule; its arguments are $x, $y (the hero by default)."""
        rules = self.material["rule"]
        if words[0] not in rules:
            raise MaterialError("%s: no rule <%s>" % (self.plot.where, words[0]))
        roles = [env.get(w, w) for w in words[1:]] or ["h"]
        inner = dict(zip("xyz", roles))
        return self.expand(self.choose(rules[words[0]].alts, inner, words[0]).text, inner)

    def text(self):
        """Tell the story: expand beat after beat and return its paragraphs."""
        paragraphs = [""]
        for beat in self.plot.beats:
            if beat.optional and not self.dice.chance(50):
                continue
            if not any(self.fits(a, {}) for a in beat.alts):
                if not beat.alts:
                    raise MaterialError(self.plot.where + ": empty beat")
                continue
            told = self.expand(self.choose(beat.alts, {}, self.plot.name).text, {})
            told = re.sub(r" +", " ", told).strip()
            if beat.paragraph and paragraphs[-1]:
                paragraphs.append("")
            paragraphs[-1] = (paragraphs[-1] + " " + told).strip()
        return "\n".join(tidy(self.reword(p)) for p in paragraphs if p)

    def reword(self, text):
        """Swap some wordings for others that mean the same (see corpus/60_swaps.txt)."""
        parts = text.split('"')
        for i in range(len(parts)):
            for pattern, options in self.material["swap-patterns"][:1 + i % 2]:
                parts[i] = pattern.sub(
                    lambda m: self.swapped(m.group(0), options[m.group(0).lower()]), parts[i])
        names = "|".join(re.escape(n) for n in self.names_taken())
        return re.sub(r'" (said|asked|called|cried) (%s)(?=[., ])' % names,
                      lambda m: '" %s %s' % (m.group(2), m.group(1))
                      if self.dice.chance(30) else m.group(0), '"'.join(parts))

    def swapped(self, old, options):
        """Return one of the options in place of the old wording, with a capital if that had one."""
        new = self.dice.pick(options)
        return new[0].upper() + new[1:] if old[0].isupper() else new

    def person_names(self):
        """Return the names of people and animals, which do not count as a difference."""
        return [e.name for e in self.cast.values() if e.is_name]


def matching(text, start, where):
    """Return the index of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] in "([":
            depth += 1
        elif text[i] in ")]":
            depth -= 1
            if depth == 0:
                return i
    raise MaterialError("%s: bracket never closed in %r" % (where, text))


def split_top(text):
    """Split at the | signs that are in no inner bracket."""
    parts, depth = [""], 0
    for char in text:
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        if char == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


# ---------------------------------------------------------------------------------------------
# Spelling and checking
# ---------------------------------------------------------------------------------------------

def tidy(text):
    """Set capitals at the starts of sentences and speeches, choose a or an, mend the spaces."""
    text = re.sub(r" +([,.!?])", r"\1", re.sub(r" +", " ", text)).strip()
    text = re.sub(r"([.!?]\")\.", r"\1", text)
    text = re.sub(r'(\w)"([.,])', r'\1\2"', text)
    text = re.sub(r"\b([Aa])n? (?=(\"?)([A-Za-z]+))", article, text)
    text = re.sub(r"(^|(?<=[^.][.!?] )|(?<=[^.]\.\" ))([a-z])",
                  lambda m: m.group(2).upper(), text)
    out, inside = [], False
    for i, char in enumerate(text):
        if char == '"':
            inside = not inside
        elif inside and char.islower() and text[i - 1] == '"' and text[i - 3:i - 2] != ",":
            char = char.upper()
        out.append(char)
    return "".join(out)


def article(match):
    """Return 'a ' or 'an ' for the word that follows."""
    word = match.group(3).lower()
    vowel = word[0] in "aeiou" and not re.match(r"(one|once|uni|use|eu)", word)
    if word in ("hour", "honest"):
        vowel = True
    return match.group(1) + ("n " if vowel else " ")


SPEAKS = re.compile(r"(?:[A-Z]\w+ )(?:\w+ ){0,2}?"
                    r"(?:said|asked|cried|called|shouted|yelled|whispered|begged|wanted to know)\b")


def sentences(text):
    """Split a story into sentences, roughly as a reader would."""
    found = []
    for line in text.split("\n"):
        line = re.sub(r"\b(Mr|Mrs|Dr)\.", r"\1", line)
        for part in re.split(r"(?<=[.!?]) |(?<=[.!?]\") (?=[A-Z])", line):
            if found and found[-1].endswith('"') and SPEAKS.match(part):
                found[-1] += " " + part
            else:
                found.append(part)
    return [s for s in found if s]


def lint(text):
    """Return what is wrong with the spelling of a story, or None."""
    for bad in ("$", "(", ")", "[", "]", "<", ">", "|", "{", "}", "_", "\\", "  ", " ,", " .",
                " !", " ?", ",,", ",.", ".,", "!.", "?.", "!,", "?,", "\t"):
        if bad in text:
            return "has %r" % bad
    match = re.search(r"\b([Aa]n [^aeiouh\"AEIOUH]\w*|[Aa] [aeiAEI]\w*)", text)
    if match and not re.match(r"[Aa]n? (one|uni|use|eu|hour|honest)", match.group(0)):
        return "article: " + match.group(0)
    if re.search(r"(?<!\.)\.\.(?!\.)|\.{4}", text):
        return "two stops"
    if re.search(r"\w\"[,.]|[a-z]\" ?[A-Z]", text):
        return "stop after the quote"
    match = re.search(r"\b(\w+) \1\b", text)
    if match and match.group(1) not in ("that", "had", "very", "drip", "round", "far", "knock"):
        return "doubled word: " + match.group(0)
    for line in text.split("\n"):
        if line.count('"') % 2:
            return "odd number of quotes"
        if not re.search(r"[.!?]\"?$", line):
            return "line without an end: " + line[-30:]
        if not re.match(r"[\"A-Z]", line):
            return "line without a capital: " + line[:30]
        if re.search(r"[^.][.!?] [a-z]", line):
            return "small letter after a stop: " + line
    return None


def words_of(text):
    """Return the words of a text in lower case."""
    return re.findall(r"[a-z]+(?:['-][a-z]+)*", text.lower())


class Corpus:
    """Generates the stories one after another and remembers what has been said how often."""

    def __init__(self, material, seed):
        self.material = material
        self.dice = Dice(seed)
        self.seen_stories = {}
        self.seen_sentences = {}
        self.rejected = {}
        plots = list(material["plot"].values())
        self.common = [p for p in plots if p.fields.get("tail") != "yes"]
        self.late = plots
        self.round = []

    def next_plot(self, late):
        """Return the next plot: each comes once per round, in a new order every round."""
        if not self.round:
            self.round = self.dice.shuffled(self.late if late else self.common)
        return self.round.pop()

    def story(self, plot):
        """Return a story of that plot which passes every check, or None if it is worn out."""
        for _ in range(TRIES):
            try:
                story = Story(self.material, plot, self.dice)
                text = story.text()
                self.judge(story, text)
                return text
            except Reject as reason:
                key = (plot.name, str(reason))
                self.rejected[key] = self.rejected.get(key, 0) + 1
        return None

    def judge(self, story, text):
        """Raise Reject if the story is too short, too long, badly spelt or too much like others."""
        problem = lint(text)
        if problem:
            raise Reject(problem)
        if not MIN_WORDS <= len(words_of(text)) <= MAX_WORDS:
            raise Reject("length")
        names = re.compile(r"\b(?:%s)\b" % "|".join(
            re.escape(n.replace("Mr.", "Mr").replace("Mrs.", "Mrs"))
            for n in story.person_names()))
        shapes = [names.sub("N", s) for s in sentences(text)]
        for i, shape in enumerate(shapes):
            limit = MAX_LONG if len(shape.split()) >= LONG_SENTENCE else MAX_SHORT
            if shape in shapes[:i]:
                raise Reject("says twice: " + shape)
            if self.seen_sentences.get(shape, 0) >= limit:
                raise Reject("said too often: " + shape)
        whole = " ".join(shapes)
        if whole in self.seen_stories:
            raise Reject("same story")
        self.seen_stories[whole] = True
        for shape in shapes:
            self.seen_sentences[shape] = self.seen_sentences.get(shape, 0) + 1
        for alt in story.picked:
            alt.used += 1

    def stories(self, count, tail):
        """Yield (plot name, text) for so many stories, the last `tail` with the late plots."""
        for number in range(count):
            if number == count - tail:
                self.round = []
            text, tries = None, 0
            while text is None:
                plot = self.next_plot(number >= count - tail)
                text = self.story(plot)
                tries += 1
                if tries > 200:
                    raise MaterialError("the plots are worn out, there must be more")
            yield plot.name, text


def generate(seed=SEED, count=STORIES, tail=TAIL):
    """Return (the corpus text, the Corpus object that made it)."""
    corpus = Corpus(read_material(MATERIAL), seed)
    told = [text + "\n" + END + "\n" for _, text in corpus.stories(count, tail)]
    return "".join(told), corpus


def check_file(text):
    """Return a list of faults of a whole corpus text."""
    faults = []
    size = len(text.encode("utf-8"))
    if not MIN_BYTES <= size <= MAX_BYTES:
        faults.append("the file has %d bytes" % size)
    if not text.endswith("\n" + END + "\n"):
        faults.append("the file does not end with a marker line")
    if "\r" in text or "\n\n" in text:
        faults.append("there are carriage returns or empty lines")
    stories = text.split("\n" + END + "\n")[:-1]
    seen = {}
    for number, story in enumerate(stories, 1):
        problem = lint(story)
        if problem:
            faults.append("story %d: %s" % (number, problem))
        if story in seen:
            faults.append("story %d is the same as story %d" % (number, seen[story]))
        seen[story] = number
        if not MIN_WORDS <= len(words_of(story)) <= MAX_WORDS:
            faults.append("story %d has %d words" % (number, len(words_of(story))))
        told = sentences(story)
        for sentence in told:
            if told.count(sentence) > 1:
                faults.append("story %d says twice: %s" % (number, sentence))
                break
    return faults


def print_stats(text, corpus):
    """Print what a reader of data/README.md wants to know about the corpus."""
    stories = text.split("\n" + END + "\n")[:-1]
    words = words_of(text.replace(END, ""))
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    lengths = sorted(len(words_of(s)) for s in stories)
    shapes = corpus.seen_sentences
    total = sum(shapes.values())
    print("stories          %d from %d plots" % (len(stories), len(corpus.material["plot"])))
    print("bytes            %d" % len(text.encode("utf-8")))
    print("words            %d (%d distinct, %d seen three times or more)"
          % (len(words), len(counts), sum(1 for c in counts.values() if c >= 3)))
    print("words per story  %d to %d, median %d"
          % (lengths[0], lengths[-1], lengths[len(lengths) // 2]))
    print("sentences        %d (%d different once names are taken out)" % (total, len(shapes)))
    for limit in (5, 10, 20):
        often = sum(c for c in shapes.values() if c > limit)
        print("  in one that occurs more than %2d times: %.1f %%" % (limit, 100.0 * often / total))
    print("sha256           %s" % hashlib.sha256(text.encode("utf-8")).hexdigest())


def main():
    """Read the command line and do what it asks."""
    parser = argparse.ArgumentParser(description="Write or check data/stories.txt.")
    parser.add_argument("--check", action="store_true", help="compare and lint, write nothing")
    parser.add_argument("--show", type=int, metavar="N", help="print N stories, write nothing")
    parser.add_argument("--plot", help="with --show: only this plot")
    parser.add_argument("--seed", type=int, default=SEED, help="with --show: another seed")
    parser.add_argument("--output", default=OUTPUT, help="the file to write (data/stories.txt)")
    args = parser.parse_args()
    if args.show:
        corpus = Corpus(read_material(MATERIAL), args.seed)
        if args.plot:
            corpus.common = [corpus.material["plot"][args.plot]]
        for name, text in corpus.stories(args.show, 0 if args.plot else args.show):
            print("--- %s\n%s" % (name, text))
        return 0
    text, corpus = generate()
    faults = check_file(text)
    if args.check:
        with open(OUTPUT, "rb") as stream:
            shipped = stream.read()
        print("shipped sha256   %s" % hashlib.sha256(shipped).hexdigest())
        if shipped != text.encode("utf-8"):
            faults.insert(0, "data/stories.txt is not what the generator writes")
    print_stats(text, corpus)
    for fault in faults[:20]:
        print("FAULT: " + fault, file=sys.stderr)
    if not args.check and not faults:
        with open(args.output, "wb") as stream:
            stream.write(text.encode("utf-8"))
    if faults:
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MaterialError as problem:
        sys.exit("make_corpus.py: %s" % problem)
