#!/bin/sh
# Runs in a Debian that systemd has started, with a control plane of its own and
# packages of these versions in /shared: 0.0.1, 0.0.2 and 0.0.5 live, 0.0.3 dies
# at once, 0.0.4 hangs. Each line that is not so ends it; the last word of it says
# that all was.
set -eux
export PATH="$PATH:/shared/bin" HOME=/root

until_true() {
	set +x
	for _ in $(seq 900); do
		"$@" && set -x && return
		sleep 0.1
	done
	set -x
	journalctl --quiet --unit muster-host.service --unit muster-host-rollback.service | tail -40
	muster node report "$node" || true
	echo "in 90 seconds or more it was not so: $*"
	exit 1
}
proven() { cmp -s /usr/bin/muster-host /var/lib/muster-host/proven && [ ! -e /var/lib/muster-host/candidate.json ]; }
declare_version() {
	printf '{"resources": [{"adopt": true, "package": {"name": "muster-host", "version": "%s"}}, {"file": {"path": "/etc/hello", "content": "%s"}}]}' "$1" "$1" |
		muster node declare "$node" -
}
says() { muster node report "$node" -o json >/run/report && grep -q "$1" /run/report; }
reports() { says "\"version\": \"$1\"" && says "\"outcome\": \"$2\""; }
runs() { [ "$(muster-host version | cut -d ' ' -f 2)" = "$1" ] && [ "$(readlink "/proc/$(systemctl show --property MainPID --value muster-host.service)/exe")" = /usr/bin/muster-host ]; }
rolled_back() { runs "$1" && [ ! -e /var/lib/muster-host/candidate.json ] && reports "$1" failed && says "$2"; }

echo 'deb [trusted=yes] file:/shared ./' >/etc/apt/sources.list
rm -f /etc/apt/sources.list.d/*
apt-get -qq update
mkdir -p /run/systemd/system/muster-host.service.d /run/systemd/system/muster-host-rollback.service.d /run/systemd/system/muster-host-rollback.timer.d
printf '[Service]\nExecStart=\nExecStart=-/var/lib/muster-host/proven rollback --within 10s\n' >/run/systemd/system/muster-host-rollback.service.d/soon.conf
printf '[Timer]\nOnActiveSec=\nOnUnitActiveSec=\nOnActiveSec=2s\nOnUnitActiveSec=2s\nAccuracySec=1s\n' >/run/systemd/system/muster-host-rollback.timer.d/soon.conf
apt-get -qq -y install muster-host=0.0.1 </dev/null
systemd-run --quiet --unit musterd /shared/bin/musterd
until_true muster node ls
muster token issue | muster-host enrol --token -
node=$(muster node ls -o json | grep -o '"node_id": "[^"]*"' | cut -d '"' -f 4)
until_true proven

# A good one: it is the declaration's package, the host ends and is started as it.
declare_version 0.0.1
until_true reports 0.0.1 changed
declare_version 0.0.2
until_true runs 0.0.2
until_true reports 0.0.2 ok
until_true proven
[ "$(cat /etc/hello)" = 0.0.2 ]

# One that cannot run and one that hangs: the one before it comes back, says so,
# does the rest, and does not install it again.
for bad in 0.0.3 0.0.4; do
	declare_version $bad
	until_true rolled_back 0.0.2 "version $bad was rolled back"
	[ "$(dpkg-query -W -f '${Version}' muster-host)" = $bad ]
	until_true [ "$(cat /etc/hello)" = $bad ]
	pid=$(systemctl show --property MainPID --value muster-host.service)
	muster node report "$node" --now >/run/report
	grep "version $bad was rolled back" /run/report
	runs 0.0.2
	[ "$(systemctl show --property MainPID --value muster-host.service)" = "$pid" ]
done
journalctl --quiet | grep 'was rolled back: it was not linked within 10s'

# The owner installs it again by hand: it does not even begin.
apt-get -qq -y install --reinstall muster-host=0.0.4 </dev/null
systemctl kill --signal=TERM muster-host.service
until_true runs 0.0.2

# Nobody is there: that is not the new one's fault, and what was declared last, the
# version that was rolled back, is not installed again.
systemctl stop musterd
apt-get -qq -y install muster-host=0.0.5 </dev/null
systemctl kill --signal=TERM muster-host.service
until_true runs 0.0.5
sleep 20
runs 0.0.5
[ -e /var/lib/muster-host/candidate.json ]
systemctl reset-failed musterd || true
systemd-run --quiet --unit musterd /shared/bin/musterd
until_true proven
declare_version 0.0.5
until_true reports 0.0.5 ok
echo ALL WAS SO
