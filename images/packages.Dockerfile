# More Debian packages on top of the root, for desktops that were asked for with them. A layer of its own, so
# that a new agent does not install them again.
ARG BASE
FROM ${BASE}
ARG PACKAGES
COPY sources.list /etc/apt/sources.list
COPY build.conf /etc/apt/apt.conf.d/99deskbox-build
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${PACKAGES} \
 && rm -rf /etc/apt/sources.list /etc/apt/apt.conf.d/99deskbox-build /var/lib/apt/lists/* /var/cache/apt/* \
    /var/cache/debconf/* /var/log/*
