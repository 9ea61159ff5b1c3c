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
find /etc/alternatives -name '*.gz' -xtype l -delete
rm -f /var/lib/dpkg/alternatives/*.gz

# The fonts are indexed now: the root is read-only later and every first start would pay for it. An index
# holds the time of its directory to the nanosecond, which an archive forgets: so let it be a whole second.
firefox_fonts=/usr/lib/firefox-esr/fonts
find /usr/share/fonts /usr/local/share/fonts $firefox_fonts -type d -exec touch --date=2000-01-01T00:00:00Z {} +
fc-cache --system-only --force
fc-cache --force $firefox_fonts

# Firefox compiles its own scripts on a profile's first start, which takes a second. Every desktop would
# repeat that, so one start is made here and what it compiled becomes the seed of the guest's profile.
work=/tmp/deskbox-firefox
seed=/usr/share/deskbox/profile
rm -rf "$work" "$seed"
mkdir -p "$seed"
install -d -o user -g user "$work" "$work/profile"
setpriv --reuid=1000 --regid=1000 --clear-groups env -i PATH="$PATH" HOME="$work" LANG=C.UTF-8 \
    MOZ_REMOTE_SETTINGS_DEVTOOLS=1 MOZ_CRASHREPORTER_DISABLE=1 \
    firefox-esr --headless --profile "$work/profile" file:///usr/share/deskbox/start.html \
    </dev/null >"$work/log" 2>&1 &
firefox=$!
compiled() {
    for name in scriptCache.bin scriptCache-child.bin startupCache.*.little urlCache.bin webext.sc.lz4; do
        [ -s "$(echo "$work/profile/startupCache"/$name)" ] || return 1
    done
}
tries=0
until compiled || [ $tries -ge 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill "$firefox"
wait "$firefox" || true
if compiled; then
    (cd "$work/profile" && cp -r startupCache compatibility.ini addonStartup.json.lz4 extensions.json "$seed")
    # Of the settings, what says that this profile's first start is over; not what tells one profile from
    # another.
    grep -Ei '^user_pref\("(app\.normandy|browser\.(migration|newtabpage|pageActions|proton|uiCustomization)|extensions\.|nimbus\.migrations|pdfjs\.)' \
        "$work/profile/prefs.js" | grep -vi 'impressionId' >"$seed/prefs.js"
    chmod -R a+rX "$seed"
else
    echo "Firefox could not be started during the build; each desktop's Firefox will start a second later" >&2
    tail -n 5 "$work/log" >&2
fi
rm -rf "$work"

# No two guests share an identity: the session writes a new one at each start.
ln -sf /run/machine-id /etc/machine-id
rm -f /var/lib/dbus/machine-id

# The day on which an account was made is that of the build, and would be another one in each root.
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1::/' /etc/shadow

# Where the host's socket directory is mounted.
mkdir -p /rpc

# Traces of the build, and of the image that it began with. (hostname, hosts and resolv.conf are in overlay/:
# a Docker build shows this script its own.)
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
rm -f /etc/apt/apt.conf.d/docker-* /etc/dpkg/dpkg.cfg.d/docker* /usr/sbin/policy-rc.d
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/*
rm -f /var/lib/dpkg/*-old /var/lib/dpkg/available /etc/*- /etc/.pwd.lock
