// SPDX-License-Identifier: Apache-2.0

package sched

// New data goes out on the leader: the subflow with the lowest RTT, or the former leader unless that RTT is below
// 3/4 of its own. On a timer copies go out on all others with room: of all outstanding data if it fits there, else
// of the oldest. Data of a subflow that has died goes out again on all that have room. Backups get no copies, only
// what a timeout sends again.
func init() {
	register("redundant", Scheduler{Rule: func(d *decision) {
		fastest := d.fastest(d.alive)
		leader := fastest
		room, beside, died := 0.0, 0, false
		for i, s := range d.Subflows {
			if d.alive[i] && s.SubflowID == d.Scene.Memory.Leader && 4*d.Subflows[fastest].SRTT >= 3*s.SRTT {
				leader = i
			}
			died = died || s.Carried != 0 && !d.alive[i]
		}
		if leader >= 0 {
			d.Scene.Memory.Leader = d.Subflows[leader].SubflowID
		}
		takes := func(i int) bool { return d.alive[i] && d.Subflows[i].Full == 0 && d.Subflows[i].room() > 0 }
		for i, s := range d.Subflows {
			if i != leader && takes(i) && s.Backup == 0 {
				room += s.room()
				beside++
			}
		}
		reinject := d.Connection.Reinject != 0
		switch {
		case !reinject && (d.Connection.Copying == 0 || beside == 0):
			d.send(leader)
			return
		case reinject && !died && d.Connection.Copied != 0:
			return
		case reinject && !died && beside > 0 && d.Connection.Outstanding <= room:
			d.Resend = 1
			return
		}
		for i, s := range d.Subflows {
			if i == leader && !died || !takes(i) {
				continue
			}
			d.usable[i] = s.Backup == 0 || reinject && d.Connection.Early == 0
			if !d.usable[i] {
				continue
			}
			d.send(i)
			if !reinject {
				return
			}
		}
	}})
}
