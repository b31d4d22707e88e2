// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// counts are the counters that are read at the beginning and at the end of the measured phase, besides those that
// observers read.
type counts struct {
	at     time.Time
	queues []lab.QueueStats // in the order of network.directions
	late   map[*user]uint64 // packets that waited in MPTCP's out-of-order queue: see soleReceivers
	zones  []energy.Zone
	cpus   cpuTime
}

func (m *measurement) count(rapl *energy.RAPL) (c counts, err error) {
	c.at = time.Now()
	c.late = map[*user]uint64{}
	for _, d := range m.net.directions {
		var q lab.QueueStats
		if d.shape.Rate > 0 {
			if q, err = d.link.Stats(d.dir); err != nil {
				return c, err
			}
		}
		c.queues = append(c.queues, q)
	}
	for host, u := range soleReceivers(m.users) {
		if c.late[u], err = outOfOrder(m.net.hosts[host]); err != nil {
			return c, err
		}
	}
	if c.cpus, err = readCPUTime(); err != nil {
		return c, err
	}
	c.zones, err = rapl.Read()
	return c, err
}

// soleReceivers returns the hosts that receive for a single MPTCP user, with that user: of these, the host's
// MPTCP counters are the user's.
func soleReceivers(users []*user) map[scenario.Name]*user {
	all := map[scenario.Name][]*user{}
	for _, u := range users {
		if u.class.Transport == scenario.OverMPTCP {
			all[u.receiver()] = append(all[u.receiver()], u)
		}
	}
	sole := map[scenario.Name]*user{}
	for host, users := range all {
		if len(users) == 1 {
			sole[host] = users[0]
		}
	}
	return sole
}

// outOfOrder returns how many packets have waited in a host's out-of-order
// queues of MPTCP.
func outOfOrder(h *lab.Host) (n uint64, err error) {
	err = h.Do(func() error {
		state, err := mptcp.OpenState()
		if err != nil {
			return err
		}
		defer state.Close()
		all, err := state.Counters()
		if err != nil {
			return err
		}
		var known bool
		if n, known = all["OFOQueue"]; !known {
			return errors.New("this kernel does not count MPTCP's out-of-order packets (MPTcpExtOFOQueue)")
		}
		return nil
	})
	return n, err
}

// cpuTime is how long the machine's processors have been idle, and in all, in the kernel's ticks.
type cpuTime struct{ idle, all uint64 }

func readCPUTime() (c cpuTime, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(first)[1:] {
		ticks, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return c, fmt.Errorf("/proc/stat: %w", err)
		}
		if i == 3 || i == 4 { // idle, and waiting for a disk
			c.idle += ticks
		}
		c.all += ticks
	}
	return c, nil
}

// mostBusy is the share of the processors' time above which they may have been
// what limited a run, instead of its links.
const mostBusy = 0.97

// busy returns a fault if the processors had hardly any time to spare between two readings.
func busy(from, to cpuTime) []string {
	if all := to.all - from.all; all > 0 {
		if busy := 1 - float64(to.idle-from.idle)/float64(all); busy > mostBusy {
			return []string{"the processors were busy all the time: figures show the limits of the machine instead of those of the network"}
		}
	}
	return nil
}
