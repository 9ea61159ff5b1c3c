#!/bin/sh
# Turns a Debian root with the packages of packages.txt and the files of overlay/ into the guest's root.
# Runs inside that root as root, at the end of either build; running it twice changes nothing.
set -eu

# The one user. No password, no sudo, no group that gives anything.
id -u user >/dev/null 2>&1 || useradd --uid 1000 --user-group --create-home --shell /bin/bash user

# Nothing may gain privileges: no file keeps a setuid or setgid bit or a file capability.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

# What 90-deskbox keeps dpkg from unpacking may have come with the base image.
find /usr/share/doc -type f ! -name copyright -delete
find /usr/share/locale -mindepth 1 -maxdepth 1 ! -name locale.alias -exec rm -rf {} +
rm -rf /usr/share/man/* /usr/share/info/* /usr/share/lintian /usr/share/bug
find /usr/share/doc -type d -empty -delete

# The fonts are indexed now: the root is read-only later and every first start would pay for it.
fc-cache --system-only --force

# No two guests share an identity: the session writes a new one at each start.
ln -sf /run/machine-id /etc/machine-id
mkdir -p /var/lib/dbus
ln -sf /etc/machine-id /var/lib/dbus/machine-id

# Where the host's socket directory is mounted.
mkdir -p /rpc

# Traces of the build.
: >/etc/resolv.conf
echo deskbox >/etc/hostname
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >/etc/hosts
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/*
rm -f /var/lib/dpkg/*-old /var/lib/dpkg/available /etc/*- /etc/.pwd.lock
find /tmp /var/tmp /run -mindepth 1 -xdev ! -path '/tmp/deskbox*' -delete 2>/dev/null || true
