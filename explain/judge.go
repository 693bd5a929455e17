package explain

import (
	"fmt"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/boot"
)

// judge is the rows, top to bottom: the first that applies gives the verdict.
func (c *inquiry) judge() {
	switch {
	case c.expunged():
	case c.last == nil:
		c.neverSeen()
	case c.conflict():
	case c.settled():
	case c.looping():
	case !c.last.Serve && c.last.Reason == boot.OtherServer.String():
		c.elsewhere()
	case !c.last.Serve && c.last.Via == boot.DHCP.String() && !c.chatter():
		c.silent()
	case !c.last.Serve && c.last.Via != boot.DHCP.String():
		c.refused()
	default:
		c.progress()
	}
}

// chatter tells whether the last message is one that nobody would answer, from
// a machine that booted before: a RELEASE, say.
func (c *inquiry) chatter() bool {
	if c.last.Reason != boot.MessageType.String() && c.last.Reason != boot.NotPXE.String() {
		return false
	}
	for i := len(c.x.Steps) - 1; i >= 0; i-- {
		if s := &c.x.Steps[i]; s.Reason != c.last.Reason {
			if s.Serve {
				c.last, c.age = s, c.Now.Sub(s.At)
				return true
			}
			return false
		}
	}
	return false
}

func (c *inquiry) neverSeen() {
	if seen := c.Record.LastSeen; seen != nil {
		c.set(muster.BootNeverSeen, "forgotten", fmt.Sprintf("Nothing is remembered of what %s asked: it was last seen %s ago, and traces are kept for two weeks.", c.mac, span(c.Now.Sub(*seen))))
	} else {
		c.set(muster.BootNeverSeen, "", fmt.Sprintf("No booter has ever heard anything from %s.", c.mac))
	}
	switch n := len(c.x.Booters); {
	case n == 0:
		c.x.Cause = "no_booter"
		c.x.Summary += " No booter has ever reported either: nobody listens."
		c.advise("Start a booter on the machines' segment; it needs a key of scope booter and one of scope ur_enroll.", "muster-booter --help")
	case c.alive() == 0:
		c.x.Cause = "no_booter_alive"
		c.x.Summary += " No booter is alive: nobody listens."
		c.advise("See when the booters were last heard, then start them and read their log.", "muster booter ls")
	}
	c.advise("Is it powered on, with network boot first in its boot order, and is the link up? The MAC must be that of the card it boots from.", "")
	c.advise("Is its switch port in the VLAN that the booter listens on, without spanning tree's delay (portfast)? Across a router a DHCP relay must name the booter.", "")
	c.advise("Does the booter listen there? It logs interface and address as it starts; on its host, look for the machine's packets.", "tcpdump -eni any -w boot.pcap 'ether host "+c.mac+"'")
	c.advise("What the capture holds is explained the same way.", "muster boot explain --pcap boot.pcap")
}

// expunged: a tombstone keeps the machine out, whatever it asks and says. A
// machine whose registration was forgotten is known by what its firmware says.
func (c *inquiry) expunged() bool {
	uuid := c.Record.ServerUUID
	switch {
	case c.Machine != nil:
		uuid = c.Machine.ServerUUID
	case uuid == "" && c.x.Firmware != nil:
		uuid = c.x.Firmware.UUID
	}
	if c.Tombstone == nil || uuid == "" || c.Record.Mode == muster.RescueMode {
		return false
	}
	x := c.Tombstone(uuid)
	if x == nil {
		return false
	}
	why := ""
	if x.Reason != "" {
		why = " (" + x.Reason + ")"
	}
	verdict := muster.BootSilent
	if c.last == nil {
		verdict = muster.BootNeverSeen
	}
	c.set(verdict, "is_expunged", fmt.Sprintf("Machine %s was expunged %s ago by %s%s: its boot records serve nothing, its keys are dead, and nothing that it says of itself lets it in.",
		uuid, span(c.Now.Sub(x.At)), x.By, why))
	at := x.At
	c.x.Since = &at
	c.advise("If it may come back, lift its tombstone: it comes as a new node, and its old keys stay dead.", "muster registration readmit "+uuid)
	if c.Record.State == muster.BootDecommissioned {
		c.advise("After that, let its card boot again; until then that is refused.", "muster boot reactivate "+c.mac)
	}
	c.advise("To look at it where it stands, boot the rescue image.", "muster boot set "+c.mac+" --mode rescue")
	return true
}

// conflict: a machine behind the card announced itself, and waits because its
// evidence is another's.
func (c *inquiry) conflict() bool {
	if len(c.Waiting) == 0 {
		return false
	}
	n := c.Waiting[len(c.Waiting)-1]
	if c.last.At.After(n.LastSeen.Add(bootTime)) {
		return false // it has started over since
	}
	c.set(muster.BootWaiting, "in_conflict", fmt.Sprintf("It booted and announced itself, and waits: its evidence is in part that of machine %s (%s).", n.Incumbent, n.Reason))
	at := n.FirstSeen
	c.x.Since = &at
	c.advise("See both.", "muster machine show "+n.ID)
	for _, verb := range n.Verbs {
		c.advise(verbSays[verb], "muster machine "+verb+" "+n.ID)
	}
	return true
}

var verbSays = map[string]string{
	"accept":   "If it is that machine, take its new evidence in.",
	"separate": "If it is a machine of its own, let it in as one.",
	"move-nic": "If the network card is in this machine now, take it from the other one.",
	"forget":   "If it should not be here, drop it; it waits again if it comes again.",
}

// settled: does the registration tell more than the packets?
func (c *inquiry) settled() bool {
	m := c.x.Machine
	if m == nil || c.Record.State == muster.BootDecommissioned || c.Record.Mode == muster.RescueMode {
		return false
	}
	// A machine that asked for something to boot long after it was last heard
	// has left what it was doing.
	again := c.last.At.After(m.LastSeen.Add(patience)) && (c.last.Via != boot.DHCP.String() || c.booting())
	name := nameOf(c.Machine)
	switch m.State {
	case muster.SettingUp:
		c.set(muster.BootInstall, "", name+" is being set up: an approved setup runs on it.")
		c.advise("Watch it.", "muster registration show "+name)
		c.advise("Give up on it; its key stops working at once.", "muster registration cancel-setup "+name)
	case muster.AwaitingSetup:
		if again {
			return false
		}
		what := "is_awaiting_setup"
		c.set(muster.BootWaiting, what, fmt.Sprintf("It booted, announced itself as %s, and waits for an operator's approval.", name))
		at := m.LastSeen
		c.x.Since = &at
		if !m.Surveyed {
			c.x.Cause = "is_not_surveyed"
			c.x.Summary = fmt.Sprintf("It booted and announced itself as %s; its disks are being looked at, and until that is done nothing can be approved.", name)
		}
		if m.LastError != "" {
			c.x.Summary += " Its last setup failed: " + strings.TrimSuffix(m.LastError, ".") + "."
		}
		c.advise("See what would be built, disk by disk.", "muster registration plan-setup "+name)
		c.advise("Approve; this destroys what is on the planned disks.", "muster registration approve-setup "+name)
	case muster.Pending:
		if again {
			return false
		}
		c.set(muster.BootWaiting, "is_pending", fmt.Sprintf("It runs, registered as %s, and shows a claim code that nobody has approved.", name))
		c.advise("Read the code off its screen and approve it.", "muster registration approve CODE")
	case muster.Disabled:
		if again {
			return false
		}
		c.set(muster.BootWaiting, "is_disabled", fmt.Sprintf("%s booted, but it is disabled: its key does not work.", name))
		c.advise("See what it is and what may become of it.", "muster registration show "+name)
	case muster.Approved:
		if again {
			return false
		}
		c.set(muster.BootRunning, "", fmt.Sprintf("%s booted and is in the fleet; its host was last heard %s ago.", name, span(c.Now.Sub(m.LastSeen))))
		at := c.last.At
		c.x.Since = &at
		for _, o := range c.Orders {
			told := "and was not told yet"
			if o.ToldAt != nil {
				told = fmt.Sprintf("and was told %s ago", span(c.Now.Sub(*o.ToldAt)))
			}
			c.x.Summary += fmt.Sprintf(" It was asked %s ago by %s to %s, %s.", span(c.Now.Sub(o.AskedAt)), o.AskedBy, o.Kind.Words(), told)
		}
	default:
		return false
	}
	return true
}

// booting: the last DHCP message came from something that wants to boot.
func (c *inquiry) booting() bool {
	return c.x.Firmware != nil && c.x.Firmware.Stage != "an operating system"
}

// loopTimes is how often the same stage must have been served within loopTime.
const (
	loopTimes = 4
	loopTime  = 10 * time.Minute
)

// looping: the same stage is served again and again, and nothing after it.
func (c *inquiry) looping() bool {
	if strings.Contains(c.last.Reason, "loop") {
		c.set(muster.BootLoop, c.last.Reason, upper(c.last.Why)+".")
		c.reasonAdvice(c.last.Reason)
		return true
	}
	if c.age > loopTime {
		return false
	}
	times, first := map[string]int{}, c.last.First
	stage := ""
	for i := len(c.x.Steps) - 1; i >= 0; i-- {
		s := &c.x.Steps[i]
		if c.last.At.Sub(s.First) > loopTime {
			break
		}
		if !s.Serve || s.Via == boot.DHCP.String() && s.Asked != "REQUEST" || s.Outcome == "aborted" {
			continue
		}
		if stage == "" {
			stage = s.Stage
		}
		if later(s.Stage, stage) { // it came further than this
			break
		}
		if s.Stage == stage {
			times[s.Via+s.Booter+s.Asked] += s.Count // kernel and initrd are one boot
			first = s.First
		}
	}
	n := 0
	for _, t := range times {
		n = max(n, t)
	}
	if n < loopTimes || stage == boot.Address.String() {
		return false
	}
	c.set(muster.BootLoop, "loop_"+stage, fmt.Sprintf("It was served the same stage (%s) %d times within %s, and never came to the next.", stage, n, span(c.last.At.Sub(first))))
	c.x.Since = &first
	switch stage {
	case boot.Loader.String():
		c.advise("The loader starts, and its own DHCP request is not known as iPXE's, or it does not start at all: look at the machine's console. Secure Boot refuses iPXE without a word; switch it off.", "")
		c.advise("Does another server answer the loader? A capture shows it.", "tcpdump -eni any -w boot.pcap 'ether host "+c.mac+"'")
	case boot.File.String():
		c.advise("It loads the whole image, and starts over: the kernel dies early. Its console says why; a serial console may be added.", "muster boot set "+c.mac+" --kernel-arg console=ttyS0")
	default:
		c.advise("iPXE starts over: its screen says at which line.", "")
	}
	return true
}

var order = map[string]int{"address": 0, "loader": 1, "autoexec": 1, "start": 2, "script": 3, "file": 4}

func later(a, b string) bool { return order[a] > order[b] }

func (c *inquiry) elsewhere() {
	c.since(func(s *muster.ExplainedStep) bool { return s.Reason == c.last.Reason })
	who := "another DHCP server"
	if c.x.Firmware != nil && c.x.Firmware.Server != "" {
		who = "the DHCP server " + c.x.Firmware.Server
	}
	c.set(muster.BootElsewhere, c.last.Reason, fmt.Sprintf("It takes the offers of %s, so muster keeps out of it.", who))
	c.advise("Two DHCP servers answer on this segment. Keep the other one from answering this machine, or let it name muster's booter as boot server.", "")
	c.advise("See what each of them answers.", "tcpdump -eni any -w boot.pcap 'port 67 or port 68' && muster boot explain --pcap boot.pcap")
}

// silent: the last DHCP message was not answered.
func (c *inquiry) silent() {
	why := c.last.Reason
	c.since(func(s *muster.ExplainedStep) bool { return !s.Serve && s.Reason == why })
	c.set(muster.BootSilent, why, upper(c.last.Why)+".")
	if asked := c.last.At.Sub(c.last.First); why == boot.Unknown.String() && c.Record.Synthesized && asked > patience {
		c.x.Summary = fmt.Sprintf("It has asked for %s, and the control plane has no record of it yet: what the booter reports does not arrive.", span(asked))
		c.x.Cause = "unreported"
	}
	if now := c.x.Now; now != nil && now.Reason != why {
		// What held it up is over, or something else does.
		c.x.Cause = now.Reason
		if now.Serve {
			c.x.Summary = fmt.Sprintf("It was not answered when it asked last (%s), but would be now: %s.", c.last.Reason, now.Why)
			c.advise("Wait for its next try, or start it anew.", "")
			return
		}
		c.x.Summary = fmt.Sprintf("It was not answered when it asked last (%s), and would not be now: %s.", c.last.Reason, now.Why)
	}
	c.reasonAdvice(c.x.Cause)
}

// refused: it has an address, and asked for what it must not have.
func (c *inquiry) refused() {
	why := c.last.Reason
	c.since(func(s *muster.ExplainedStep) bool { return !s.Serve && s.Reason == why })
	c.set(muster.BootRefused, why, fmt.Sprintf("It asked by %s for its %s and was refused: %s.", c.last.Via, c.last.Asked, c.last.Why))
	c.reasonAdvice(why)
}

// progress: everything that it asked was answered. Where is it?
func (c *inquiry) progress() {
	s := c.last
	quiet := c.age > patience
	switch {
	case s.Outcome == "lost" || s.Outcome == "cut":
		c.stuck("transfer_"+s.Outcome, fmt.Sprintf("It began to load %s by %s and fell silent in the middle%s.", s.Asked, s.Via, sent(s)),
			"Big packets are lost between them: compare the MTU of machine, switches and booter; a capture on the booter shows what is sent again and again.")
	case s.Outcome == "failed":
		c.stuck("booter_failed", fmt.Sprintf("The booter could not give it %s.", s.Asked), "The booter's log says why.")
	case s.Via == boot.DHCP.String() && s.Stage == boot.Address.String():
		c.set(muster.BootBooted, "", "An operating system on it asks for its address, and gets it.")
	case !quiet:
		c.set(muster.BootUnderway, "", fmt.Sprintf("It is booting: it asked by %s for its %s %s ago, and got it.", s.Via, what(s), span(c.age)))
		c.advise("Watch it.", "muster boot explain "+c.mac+" --follow")
	case s.Via == boot.DHCP.String() && s.Asked == "DISCOVER":
		c.stuck("offer_unheard", fmt.Sprintf("It asks, is offered %s each time, and does not take it: the offers do not reach it, or it takes another server's.", s.Address),
			"Broadcasts from the booter must reach the machine's port, and through a relay the relay must pass answers on: look on both sides for the OFFER.")
	case s.Via == boot.DHCP.String() && s.Stage == boot.Loader.String():
		c.stuck("loader_unasked", fmt.Sprintf("It took its address and was told to load %s by TFTP, and never asked for it.", s.Loader),
			"UDP port 69 of the booter, and the ports above 1024 that transfers use, must be open for it. Does its screen name another server (PXE-E32, PXE-E18)? Then one answers beside muster.")
	case s.Via == boot.DHCP.String():
		c.stuck("script_unasked", "iPXE took its address and was told to load its script by HTTP, and never asked for it.",
			"TCP port 80 of the booter must be open for it; the iPXE that it runs must have HTTP. Its screen names the error.")
	case s.Via == boot.TFTP.String():
		c.stuck("loader_silent", fmt.Sprintf("It loaded %s, and nothing came from it since.", s.Asked),
			"Secure Boot refuses iPXE without a word: switch it off. Else the loader has no driver for the card, or hangs: its screen says.")
	case s.Stage == boot.Start.String(), s.Stage == boot.Script.String():
		c.stuck(s.Stage+"_silent", fmt.Sprintf("It loaded %s, and did not go on.", s.Asked), "iPXE's screen says at which line it stopped.")
	default:
		c.loaded()
	}
}

// loaded: it got files of its image.
func (c *inquiry) loaded() {
	s := c.last
	switch {
	case c.age < bootTime:
		c.set(muster.BootUnderway, "", fmt.Sprintf("It got its files (image %s) %s ago and should be starting.", imageOf(s), span(c.age)))
		c.advise("Watch it.", "muster boot explain "+c.mac+" --follow")
	case s.Mode == boot.Enroll.String() && c.Machine == nil && !c.Policy.AutoEnroll && !c.Window.Open:
		c.stuck("not_admitted", fmt.Sprintf("It got all files of image %s %s ago, and is not known: a new machine that announces itself now is refused, because auto_enroll is off and no enrollment window is open.", imageOf(s), span(c.age)),
			"It announces itself again by itself, and gets in once somebody lets it.")
		c.advise("Open a window for it.", "muster window open enrollment --for 30m --count 1")
		c.advise("Or let in whoever comes.", "muster policy set --auto-enroll")
	case s.Mode == boot.Enroll.String() && c.Machine == nil:
		c.stuck("no_announce", fmt.Sprintf("It got all files of image %s %s ago, and has not announced itself since.", imageOf(s), span(c.age)),
			"Its console says how far the image came. It must reach the booter's boot bus (TCP port 5672): no driver for the card, another VLAN after boot, and a filter in between look like this.")
		c.advise("Give it a serial console and start it again.", "muster boot set "+c.mac+" --kernel-arg console=ttyS0")
	default:
		c.set(muster.BootBooted, "", fmt.Sprintf("It got all files of image %s (mode %s) %s ago, and has not asked for anything since.", imageOf(s), s.Mode, span(c.age)))
	}
}

func (c *inquiry) stuck(cause, summary, hint string) {
	c.set(muster.BootStuck, cause, summary)
	at := c.last.At
	c.x.Since = &at
	c.advise(hint, "")
	c.advise("See what is on the wire, on the booter's host.", "tcpdump -eni any -w boot.pcap 'ether host "+c.mac+"'")
}

// notes are what holds beside the verdict.
func (c *inquiry) notes() {
	for _, b := range c.x.Booters {
		if !b.Heard {
			continue
		}
		if !b.Alive {
			when := "has not reported yet"
			if b.LastSeen != nil {
				when = "has said nothing for " + span(c.Now.Sub(*b.LastSeen))
			}
			c.x.Summary += fmt.Sprintf(" Booter %s, which heard it, %s: what is told here may be old.", b.Booter, when)
			c.advise("Start that booter, or find out why it cannot reach the control plane.", "muster booter ls")
		}
	}
	if m := c.x.Machine; m != nil && m.Conflicts > 0 {
		c.x.Summary += " Another live machine claims its identity."
		c.advise("See who, and tell them apart.", "muster registration show "+nameOf(c.Machine))
	}
	if q := c.x.Now; q != nil && q.Quirk != "" && c.x.Verdict != muster.BootRunning {
		c.x.Summary += " Its firmware is one of the known odd ones: " + q.Quirk + "."
	}
}
