# The thin layer over the root: the agent and its wheels. Rebuilt in a second when the agent changes.
ARG BASE
FROM ${BASE}
COPY site/ /usr/local/lib/python3.13/dist-packages/
# Compiled here because the root is read-only later; unchecked, so that no start compares times.
RUN ["python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "/usr/local/lib/python3.13/dist-packages"]
ENV LANG=C.UTF-8 HOME=/home/user DISPLAY=:0
USER 1000:1000
WORKDIR /home/user
ENTRYPOINT ["dumb-init", "--", "python3", "-m", "deskbox_guest.session"]
