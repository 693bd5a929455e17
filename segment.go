package muster

import "time"

// An OtherServer is a DHCP server besides the booter that was seen on a boot
// segment.
type OtherServer struct {
	Address string `json:"address"` // its server identifier
	// Same counts what it said that agrees with the boot records, as another
	// booter does; Differs what does not, or was said to machines without one.
	Same    int64 `json:"same"`
	Differs int64 `json:"differs"`
	// MAC and Offered are an example of what differs: to whom, which address;
	// none: it refused the machine the one that it asked for.
	MAC       string    `json:"mac,omitempty"`
	Offered   string    `json:"offered,omitempty"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// Unwanted are the servers that take machines away from this booter: those that
// give other addresses than the boot records say, unless one is meant to.
func (b *BooterStatus) Unwanted() []OtherServer {
	var all []OtherServer
	for _, s := range b.OtherServers {
		if s.Differs > 0 && !b.Proxy {
			all = append(all, s)
		}
	}
	return all
}

// A LoopingMachine is one that is served the same stage again and again without
// going on from there, so that serving it rests for a while.
type LoopingMachine struct {
	MAC   string    `json:"mac"`
	Stage string    `json:"stage"` // loader, start or script
	Count int       `json:"count"`
	Until time.Time `json:"until"` // when it is served once more
}
