package explain

import (
	"fmt"
	"strings"

	"muster.internal"
	"muster.internal/boot"
)

// reasonAdvice says what an operator can do about a silence, by its reason.
func (c *inquiry) reasonAdvice(reason string) {
	if f := reasonRows[reason]; f != nil {
		f(c)
	}
}

// reasonRows have a row for every reason that boot.Decide can give; a test
// compares them.
var reasonRows = map[string]func(c *inquiry){
	boot.MessageType.String(): func(c *inquiry) {
		c.advise("Nothing: the machine gave its address up, or asks what is not a boot server's to answer.", "")
	},
	boot.NotPXE.String(): func(c *inquiry) {
		c.advise("If it should boot from the network, put network boot first in its boot order. If an operating system on it should get its address from muster, let the policy answer all.", "muster policy set --answer-only-pxe=false")
	},
	boot.OtherServer.String(): func(c *inquiry) {},
	boot.Unknown.String(): func(c *inquiry) {
		c.advise("Wait for some seconds: the booter has told the control plane, and the boot policy decides at its next request.", "muster boot show "+c.mac)
		c.advise("Does the booter reach the control plane?", "muster booter ls")
	},
	"unreported": func(c *inquiry) {
		c.advise("Does the booter reach the control plane, and is its key still good? Its log says.", "muster booter ls")
		c.advise("Or make the record by hand.", "muster boot enroll "+c.mac)
	},
	boot.Discovered.String():     (*inquiry).discovered,
	boot.Decommissioned.String(): (*inquiry).decommissioned,
	boot.Probing.String(): func(c *inquiry) {
		c.advise("The allowlist goes by service tag: it told its own, and is judged by it. Ask again in some seconds.", "muster boot explain "+c.mac)
	},
	boot.UnknownArch.String(): func(c *inquiry) {
		c.advise("Choose another way to boot in its firmware: BIOS or 64-bit UEFI. If it is wrong about itself, its packets make a new row for firmware quirks: send a capture.", "tcpdump -eni any -w boot.pcap 'ether host "+c.mac+"'")
	},
	boot.NoArch.String(): func(c *inquiry) {
		c.advise("It does not say what it is, so nothing can be chosen for it. Switch it to another way to boot, and send a capture: its packets make a new row for firmware quirks.", "tcpdump -eni any -w boot.pcap 'ether host "+c.mac+"'")
	},
	boot.Declined.String(): func(c *inquiry) {
		c.advise("It found its address in use by another machine, and gave it back: find out who answers for "+c.Record.Address+".", "arping -c 3 "+c.Record.Address)
		c.advise("Then give it another address, or free this one, and start it anew.", "muster boot set "+c.mac+" --address ADDRESS/LENGTH")
	},
	boot.Released.String(): func(c *inquiry) {
		c.advise("Nothing: it gave its address up as it shut down or changed its network. The address stays reserved for it.", "")
	},
	boot.SiteGives.String(): func(c *inquiry) {
		c.advise("Nothing: this booter runs beside the site's own DHCP server (proxyDHCP), which gives the address; if the machine gets none, look there.", "")
	},
	boot.Looping.String(): func(c *inquiry) {
		c.advise("Look at the machine's console: what it was given did not start. Secure Boot refuses iPXE without a word: switch it off.", "")
		c.advise("The booter serves it again after a while; a new image or a change to its record starts the count anew.", "muster boot show "+c.mac)
	},
	boot.NoImage.String(): func(c *inquiry) {
		c.advise("See which images there are.", "muster image ls")
		if c.Record.State == muster.Enrolled && c.Record.Mode != muster.RescueMode {
			c.advise("Assign one.", "muster boot set "+c.mac+" --image NAME")
			return
		}
		c.advise("Name one in the boot policy.", "muster policy set --enrollment-pi NAME")
	},
	boot.BadStamp.String(): func(c *inquiry) {
		c.advise("Add the image under a name of letters, digits, dots, hyphens and underscores, and assign that.", "muster image ls")
	},
	boot.NotStaged.String(): func(c *inquiry) {
		c.advise("The booter fetches it by itself. See how far it is, and what goes wrong.", "muster booter ls")
		c.stagingErrors()
	},
	boot.NoVariant.String(): func(c *inquiry) {
		name := "NAME"
		if c.x.Now != nil && c.x.Now.Image != nil {
			name = c.x.Now.Image.Name
		}
		c.advise("See what the image has, build it for this architecture too, and assign that.", "muster image show "+name)
	},
	boot.BadArgs.String(): func(c *inquiry) {
		c.advise("Set arguments that may be served, or none: "+strings.Join(badArgs(c.Record.KernelArgs), "; ")+".", "muster boot set "+c.mac+" --no-kernel-args")
	},
	boot.NoAddress.String(): func(c *inquiry) {
		c.advise("Reserve one; if its network is full, the answer says so.", "muster boot enroll "+c.mac)
		c.advise("See how large the networks are.", "muster policy show")
	},
	boot.NoNetwork.String(): func(c *inquiry) {
		c.advise(fmt.Sprintf("Its address %s is of network %q, which the policy no longer has. Put the network back.", c.Record.Address, c.Record.Network), "muster policy show")
		c.advise("Or tell the record its network itself.", "muster boot set "+c.mac+" --address "+c.Record.Address+"/24")
	},
	boot.OtherAddress.String(): func(c *inquiry) {
		c.advise("Nothing: it will give up on its old address and ask anew. If it does not, its lease file holds it: restart it.", "")
	},
	boot.LoaderMissing.String(): func(c *inquiry) {
		c.advise("On the booter's host, install the loaders, or name the directory that has them.", "apt install ipxe")
	},
	boot.AwaitingUUID.String(): func(c *inquiry) {
		c.advise("Its vendor gave many boards one UUID, so it is given its own: wait for its next try. If it goes on, see what is known of the machine.", "muster machine ls")
	},
	boot.NotOffered.String(): func(c *inquiry) {
		c.advise("Its image has changed while it loaded, or it runs a script that is not muster's: start it anew.", "")
	},
}

func badArgs(args []string) (bad []string) {
	for _, a := range args {
		if err := boot.CheckArg(a); err != nil {
			bad = append(bad, err.Error())
		}
	}
	return bad
}

// stagingErrors repeats what the booters that heard it say goes wrong.
func (c *inquiry) stagingErrors() {
	for _, b := range c.x.Booters {
		if b.Heard && len(b.Errors) > 0 {
			c.x.Summary += fmt.Sprintf(" Booter %s says: %s.", b.Booter, strings.Join(b.Errors, "; "))
		}
	}
}

// decommissioned: by an operator, or with its machine.
func (c *inquiry) decommissioned() {
	c.advise("Let it in again, as a machine that was just discovered; its address is kept.", "muster boot reactivate "+c.mac)
	c.advise("Or boot it just once, to look at it.", "muster boot set "+c.mac+" --mode rescue")
	c.advise("See who decommissioned it, and when.", "muster audit ls --subject boot-record/"+c.mac)
}

// discovered: what keeps the boot policy from admitting it?
func (c *inquiry) discovered() {
	note := c.Record.Note
	has := func(text string) bool { return strings.Contains(note, text) }
	enroll := "muster boot enroll " + c.mac
	switch {
	case c.Record.Probe:
		c.x.Cause = "tag_unknown"
		c.x.Summary = "The allowlist goes by service tag, and this machine's is not known yet: it may boot just far enough to tell it."
		c.advise("Wait for its next try, or admit it without its tag.", enroll)
		return
	case note == "":
		c.x.Summary = "It is discovered, and nothing was decided about it yet: the boot policy judges it at its next request."
		c.advise("Wait for its next try, or admit it by hand.", enroll)
		return
	}
	c.x.Summary = "It is discovered, and the boot policy does not admit it: " + strings.TrimSuffix(note, ".") + "."
	switch {
	case has("auto_enroll is off"):
		c.x.Cause = "auto_enroll_off"
		c.advise("Admit this one.", enroll)
		c.advise("In strict mode it takes an open enrollment window too, once it announces itself.", "muster window open enrollment --for 30m")
		c.advise("Or let machines in by themselves again.", "muster policy set --auto-enroll")
	case has("allowlist"):
		c.x.Cause = "not_on_allowlist"
		c.advise("Admit this one.", enroll)
		if c.Record.ServiceTag != "" {
			c.advise("Or put its service tag on the allowlist; --allow replaces the list, so name the others too.", "muster policy set --allow tag:"+c.Record.ServiceTag)
		} else {
			c.advise("Or put its MAC prefix on the allowlist; --allow replaces the list, so name the others too.", "muster policy set --allow mac:"+c.mac[:min(8, len(c.mac))])
		}
	case has("none of the boot policy's networks"):
		c.x.Cause = "network_unknown"
		c.advise("Give the boot policy a network for where it came in"+c.cameIn()+".", "muster policy set --network 'name=…,prefix=…,range=FIRST-LAST'")
		c.advise("See the networks that there are.", "muster policy show")
	case has("no free address"):
		c.x.Cause = "network_full"
		c.advise("Widen the network's range of addresses.", "muster policy show")
		c.advise("Addresses stay with decommissioned records; see which they are.", "muster boot ls --state decommissioned")
	default:
		c.advise("Admit it by hand.", enroll)
	}
}

// cameIn says by what path its last message came.
func (c *inquiry) cameIn() string {
	var parts []string
	if c.ask != nil && c.ask.Interface != "" {
		parts = append(parts, "interface "+c.ask.Interface)
	}
	if f := c.x.Firmware; f != nil {
		if f.Giaddr != "" {
			parts = append(parts, "relay "+f.Giaddr)
		}
		if f.Circuit != "" {
			parts = append(parts, "circuit "+f.Circuit)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
