package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// accounts are the names of users or groups, by number and the other way round,
// as its file says. Directories of names elsewhere (LDAP) are not asked: a root
// process must not hang on them, and declared accounts are the machine's own.
type accounts struct {
	names   map[uint32]string
	numbers map[string]uint32
}

// readAccounts reads /etc/passwd or /etc/group. A root without them has
// numbers alone, and root.
func readAccounts(file string) (accounts, error) {
	a := accounts{map[uint32]string{}, map[string]uint32{}}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		a.names[0], a.numbers["root"] = "root", 0
		return a, nil
	}
	if err != nil {
		return a, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.SplitN(s.Text(), ":", 4)
		if len(fields) < 4 {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		if _, twice := a.names[uint32(n)]; !twice {
			a.names[uint32(n)] = fields[0]
		}
		a.numbers[fields[0]] = uint32(n)
	}
	return a, s.Err()
}

// number is an account's, from its name or number; empty is root.
func (a accounts) number(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return int(n), nil
	}
	if n, known := a.numbers[name]; known {
		return int(n), nil
	}
	return 0, fmt.Errorf("this machine has no account %q", name)
}

// name is an account's name, or its number when it has none.
func (a accounts) name(n uint32) string {
	if s, known := a.names[n]; known {
		return s
	}
	return strconv.FormatUint(uint64(n), 10)
}
