# The workbook's tools without the workbook: the repository is mounted or cloned into it.
#   docker build -t workbook .
#   docker run -it --rm -u "$(id -u):$(id -g)" -v "$PWD":/workbook workbook ./workbook train
FROM debian:12-slim

COPY packages.txt /tmp/packages.txt
RUN apt-get update \
 && apt-get install -y --no-install-recommends git curl ca-certificates sudo \
      $(awk '/^[^#]/ && $2 ~ /^(build|check|editor)$/ { print $1 }' /tmp/packages.txt) \
 && rm -rf /var/lib/apt/lists/* /tmp/packages.txt

RUN useradd --create-home --shell /bin/bash student \
 && echo 'student ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/student \
 && chmod 0440 /etc/sudoers.d/student

# A build must run wherever the container runs, emulated processors included.
ENV LAB_NATIVE=OFF
USER student
WORKDIR /workbook
CMD ["bash"]
