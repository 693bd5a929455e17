#!/bin/sh
# Runs in a Debian that systemd has started, with two versions of the package
# in /shared. Each line that is not so ends it; the last word of it says that
# all was.
set -eux

installed() { # VERSION
	apt-get -qq -y install "/shared/muster-host_$1_amd64.deb" </dev/null
}
running() { # the process of the host
	systemctl show --property MainPID --value muster-host.service
}
until_true() {
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	echo "in a minute it was not so: $*"
	exit 1
}
says_hosted() { journalctl --quiet --unit muster-host.service | grep -q 'hosted: '; }
another_runs() { # PID
	now=$(running)
	[ "$now" != 0 ] && [ "$now" != "$1" ] && systemctl --quiet is-active muster-host.service
}

# The first installation starts it, and it does nothing.
installed 0.0.1
systemctl --quiet is-enabled muster-host.service
systemctl --quiet is-active muster-host.service
until_true says_hosted
pid=$(running)
[ -z "$(ls -A /var/lib/muster-host)" ]
[ "$(stat -c %a /var/lib/muster-host)" = 700 ]
[ "$(readlink "/proc/$pid/exe")" = /usr/bin/muster-host ]
muster-host version | grep -F 'muster-host 0.0.1 '
muster-host profile | grep 'services *systemd'
muster-host inventory

# What it costs while it waits: memory, and how often it woke in a minute.
sleep 3
grep -E '^(Pss|Pss_Anon):' "/proc/$pid/smaps_rollup"
grep voluntary_ctxt_switches "/proc/$pid"/task/*/status >/run/before
sleep 60
grep voluntary_ctxt "/proc/$pid"/task/*/status >/run/after
diff /run/before /run/after || true
cut -d ' ' -f 14,15 "/proc/$pid/stat"

# An upgrade leaves the running one alone; it is the new one once it has ended.
installed 0.0.2
[ "$(running)" = "$pid" ]
[ "$(readlink "/proc/$pid/exe")" = '/usr/bin/muster-host (deleted)' ]
muster-host version | grep -F 'muster-host 0.0.2 '
kill "$pid"
until_true another_runs "$pid"
pid=$(running)
[ "$(readlink "/proc/$pid/exe")" = /usr/bin/muster-host ]

# Downwards, too, and the same again.
installed 0.0.2
apt-get -qq -y install --allow-downgrades /shared/muster-host_0.0.1_amd64.deb
[ "$(running)" = "$pid" ]

# A file by hand.
echo '{"resources": [{"file": {"path": "/etc/hello", "content": "hello"}}]}' | muster-host apply -
[ "$(cat /etc/hello)" = hello ]
muster-host owned | grep file:/etc/hello

# What it knows stays when it is removed, and is there when it comes back.
apt-get -qq -y remove muster-host
[ ! -e /usr/bin/muster-host ]
[ ! -d "/proc/$pid" ]
[ -e /etc/hello ]
[ -n "$(ls -A /var/lib/muster-host)" ]
installed 0.0.1
systemctl --quiet is-active muster-host.service
muster-host owned | grep file:/etc/hello

# A person's "no" stays over an upgrade.
systemctl --quiet disable --now muster-host.service
installed 0.0.2
[ "$(running)" = 0 ]

# A purge leaves nothing of it but what it was told to make.
apt-get -qq -y purge muster-host
[ ! -e /var/lib/muster-host ]
[ ! -e /etc/systemd/system/multi-user.target.wants/muster-host.service ]
[ -e /etc/hello ]
echo ALL WAS SO
