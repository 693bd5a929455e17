module muster.internal

go 1.26.0

// What the programs are made of.
require (
	github.com/coreos/go-systemd/v22 v22.7.0 // services, over D-Bus
	github.com/danielgtaylor/huma/v2 v2.37.2 // OpenAPI 3.1 and validation from the Go types
	github.com/golang-jwt/jwt/v5 v5.3.1 // tickets (HS256)
	github.com/google/uuid v1.6.0 // node ids (UUIDv7)
	github.com/gopacket/gopacket v1.7.7 // packet captures, pcap and pcapng
	github.com/jackc/pgx/v5 v5.12.0 // PostgreSQL
	github.com/jedib0t/go-pretty/v6 v6.8.3 // tables that know how wide a rune is
	github.com/klauspost/compress v1.20.4 // zstd, for initrds
	github.com/pressly/goose/v3 v3.30.0 // migrations, the same for both databases
	github.com/spf13/cobra v1.10.2 // commands, help, completion
	github.com/spf13/pflag v1.0.10 // flags that say what they take
	go.yaml.in/yaml/v3 v3.0.6 // policies written by hand
	golang.org/x/crypto v0.59.0 // bcrypt
	golang.org/x/net v0.62.0 // router advertisements in the lab
	golang.org/x/sys v0.50.0 // mounts, modules, segmented sends, capabilities
	golang.org/x/term v0.48.0 // passwords without echo, how wide a terminal is
	modernc.org/sqlite v1.62.0 // the embedded store, without C
)

// What only the tests need.
require (
	github.com/google/go-cmp v0.7.0 // differences that can be read
	github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae // another DHCP, to compare with
	github.com/rabbitmq/amqp091-go v1.16.0 // another AMQP, to compare with
	github.com/rogpeppe/go-internal v1.16.0 // stories of the command line
	pgregory.net/rapid v1.3.0 // properties
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/godbus/dbus/v5 v5.1.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.20 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/u-root/uio v0.0.0-20240224005618-d2acac8f3701 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.43.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/tools v0.52.1-0.20261106145633-d407941a339a // indirect
	honnef.co/go/tools v0.8.2 // indirect
	modernc.org/libc v1.80.2 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

tool honnef.co/go/tools/cmd/staticcheck
