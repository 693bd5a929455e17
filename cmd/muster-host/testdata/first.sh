#!/bin/sh
# Runs in a Debian that systemd has started, at its first start and at its
# second; each line that is not so ends it. /shared has the packages, the
# commands that the README names and which bundle is meant.
set -eux
export HOME=/root
bundle=$(cat /shared/bundle)

until_true() {
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	echo "in a minute it was not so: $*"
	exit 1
}
fails() {
	if "$@"; then
		echo "it did not fail: $*"
		exit 1
	fi
}
# What the host last did here was right, and changed nothing.
nothing_to_do() {
	muster-host reconcile --output json >/run/report
	fails grep -E '"outcome": "(changed|kept|unknown|failed)"' /run/report
}
declares() { # TEXT, as the content of a file
	echo "{\"resources\": [{\"file\": {\"path\": \"/etc/hello\", \"content\": \"$1\"}}]}" >/run/declaration
	muster node declare "$(hostname)" /run/declaration
	until_true grep -qx "$1" /etc/hello
	until_true applied
}
applied() { muster node report "$(hostname)" --output json | grep -Eq '"outcome": "(changed|ok)"'; }
linked() { muster node ls --output json | grep -q '"linked": true'; }
# A command with what it says, for people.
shown() {
	echo "# $1" >>/shared/transcript
	sh -euc "$1" >/run/said 2>&1 || { cat /run/said; journalctl --quiet --no-pager --unit musterd.service; exit 1; }
	cat /run/said >>/shared/transcript
}
control_plane_is_up() {
	systemctl --quiet is-active musterd.service
	systemctl --quiet is-enabled musterd.service
}

first() {
	apt-get -qq -y install /shared/muster-host_*.deb /shared/muster-bundle_*.deb </dev/null

	# Cut short anywhere, it goes on from there.
	for after in 0.05 0.2 0.4 0.8 3; do
		timeout --signal KILL "$after" muster-host reconcile --bundle "$bundle" || true
	done
	# Another one would be another control plane.
	fails muster-host reconcile --bundle /shared/none.yaml

	# The README's three commands; the first again, which changes nothing.
	shown "$(sed -n 1p /shared/commands)"
	control_plane_is_up
	nothing_to_do
	shown "$(sed -n '2,$p' /shared/commands)"

	until_true linked
	shown 'muster node ls'
	declares one
	shown 'muster node report $(hostname)'
	nothing_to_do
	fails muster-host reconcile --bundle "$bundle" # it is a node like any other

	# The first password is nowhere but in its file.
	password=$(sed -n 's/.*"password": "\(.*\)".*/\1/p' /var/lib/musterd/first-login)
	[ -n "$password" ]
	[ "$(stat -c %a /var/lib/musterd/first-login)" = 600 ]
	journalctl --quiet >/run/journal
	fails grep -F -- "$password" /run/journal
	if [ "$bundle" = postgresql ]; then
		[ ! -e /var/lib/musterd/muster.db ]
		runuser -u postgres -- psql -XtA -d muster -c 'SELECT tableowner FROM pg_tables' | grep -qx musterd
	fi
	echo FIRST START WAS SO
}

second() {
	# The machine has started again, and all is back.
	echo "(the machine starts again)" >>/shared/transcript
	until_true linked
	shown 'muster node ls'
	control_plane_is_up
	declares two
	nothing_to_do

	# A newer bundle is applied by hand, and the control plane is the newer one.
	pid=$(systemctl show --property MainPID --value musterd.service)
	echo '# newer' >>/usr/share/muster-host/bundle/musterd.service
	muster-host apply "/usr/share/muster-host/bundle/$bundle.yaml"
	[ "$(systemctl show --property MainPID --value musterd.service)" != "$pid" ]
	control_plane_is_up
	until_true linked

	# It leaves the fleet like any other: what was declared goes, what the bundle
	# made stays, even without the host.
	id=$(muster node ls --output json | sed -n 's/.*"node_id": "\(.*\)".*/\1/p')
	uuid=$(muster node show "$id" --output json | sed -n 's/.*"server_uuid": "\(.*\)".*/\1/p' | head -n 1)
	serial=$(muster node show "$id" --output json | sed -n 's/.*"serial": "\(..*\)".*/\1/p' | head -n 1)
	muster node retire "$id" --yes --serial "${serial:-$uuid}"
	until_true test ! -e /etc/hello
	until_true test ! -e /var/lib/muster-host/credential
	shown 'muster-host owned'
	shown 'muster-host reconcile'
	nothing_to_do
	apt-get -qq -y purge muster-bundle muster-host
	[ ! -e /var/lib/muster-host ]
	control_plane_is_up
	muster operator ls
	echo SECOND START WAS SO
}

if [ -e /var/lib/muster-host ]; then second; else first; fi
