package wire

import (
	"bytes"
	"encoding/json"
)

// Decode decodes data of the usual form, and reports whether it could. If not,
// the page is unchanged and encoding/json must be used.
func (p *SandboxesPage) Decode(data []byte) bool {
	s := scanner{b: data}
	var page SandboxesPage
	s.object([]string{"sandboxes", "pagination"}, func(field int) {
		switch field {
		case 0:
			page.Sandboxes = s.sandboxes()
		case 1:
			page.Pagination = s.pagination()
		}
	})
	if !s.done() {
		return false
	}
	*p = page
	return true
}

func (s *scanner) pagination() (p Pagination) {
	s.object([]string{"count", "next"}, func(field int) {
		switch field {
		case 0:
			p.Count = s.count()
		case 1:
			p.Next = new(s.string(""))
		}
	})
	return p
}

func (s *scanner) sandboxes() []Sandbox {
	list := []Sandbox{}
	// Most fields of a sandbox are the same as in the one before: such strings
	// are shared.
	var last Sandbox
	s.array(func() {
		start := s.i
		s.sandbox(&last)
		if len(list) == 0 {
			list = make([]Sandbox, 0, 1+(len(s.b)-s.i)/max(1, s.i-start))
		}
		list = append(list, last)
	})
	return list
}

var sandboxFields = []string{
	"name", "currentSnapshotId", "currentSessionId", "status", "statusUpdatedAt", "persistent", "region", "failoverRegions",
	"vcpus", "memory", "runtime", "architecture", "image", "timeout", "networkPolicy", "networkId",
	"totalEgressBytes", "totalIngressBytes", "totalActiveCpuDurationMs", "totalDurationMs", "cwd", "mounts", "tags",
	"snapshotExpiration", "keepLastSnapshots", "createdAt", "updatedAt", "expiresAt",
}

// sandbox reads a sandbox into the given one, whose strings it reuses.
func (s *scanner) sandbox(sb *Sandbox) {
	last := *sb
	*sb = Sandbox{}
	totals := new(struct {
		egress, ingress int64
		cpu, duration   Duration
	})
	s.object(sandboxFields, func(field int) {
		switch sandboxFields[field] {
		case "name":
			sb.Name = s.string("")
		case "persistent":
			sb.Persistent = s.bool()
		case "region":
			sb.Region = s.string(last.Region)
		case "failoverRegions":
			sb.FailoverRegions = []string{}
			s.array(func() { sb.FailoverRegions = append(sb.FailoverRegions, s.string("")) })
		case "vcpus":
			sb.VCPUs = s.count()
		case "memory":
			sb.Memory = s.count()
		case "runtime":
			sb.Runtime = s.string(last.Runtime)
		case "architecture":
			sb.Architecture = s.string(last.Architecture)
		case "image":
			sb.Image = s.string(last.Image)
		case "timeout":
			sb.Timeout = s.duration()
		case "networkPolicy":
			sb.NetworkPolicy = s.networkPolicy("allow-all")
		case "networkId":
			sb.NetworkID = s.string(last.NetworkID)
		case "totalEgressBytes":
			totals.egress = s.int()
			sb.TotalEgressBytes = &totals.egress
		case "totalIngressBytes":
			totals.ingress = s.int()
			sb.TotalIngressBytes = &totals.ingress
		case "totalActiveCpuDurationMs":
			totals.cpu = s.duration()
			sb.TotalActiveCPUDurationMs = &totals.cpu
		case "totalDurationMs":
			totals.duration = s.duration()
			sb.TotalDurationMs = &totals.duration
		case "createdAt":
			sb.CreatedAt = s.time()
		case "updatedAt":
			sb.UpdatedAt = s.time()
		case "expiresAt":
			sb.ExpiresAt = s.time()
		case "currentSessionId":
			sb.CurrentSessionID = s.string("")
		case "currentSnapshotId":
			sb.CurrentSnapshotID = s.string(last.CurrentSnapshotID)
		case "status":
			sb.Status = s.string(last.Status)
		case "statusUpdatedAt":
			sb.StatusUpdatedAt = s.time()
		case "cwd":
			sb.Cwd = s.string(last.Cwd)
		case "mounts":
			s.rare(&sb.Mounts)
		case "tags":
			sb.Tags = s.tags()
		case "snapshotExpiration":
			sb.SnapshotExpiration = new(s.duration())
		case "keepLastSnapshots":
			sb.KeepLastSnapshots = new(KeepLastSnapshots)
			s.rare(sb.KeepLastSnapshots)
		}
	})
}

func (s *scanner) tags() map[string]string {
	tags := map[string]string{}
	s.eat('{')
	for first := true; s.more(first, '}'); first = false {
		key := s.string("")
		s.eat(':')
		tags[key] = s.string("")
	}
	return tags
}

// networkPolicy reads a network policy, which is likely to be just the given
// mode.
func (s *scanner) networkPolicy(mode string) *NetworkPolicy {
	p := new(NetworkPolicy)
	if usual := `{"mode":"` + mode + `"}`; s.peek() == '{' && bytes.HasPrefix(s.b[s.i:], []byte(usual)) {
		s.i += len(usual)
		p.Mode = mode
		return p
	}
	s.rare(p)
	return p
}

// rare decodes one value with encoding/json.
func (s *scanner) rare(out any) {
	if data := s.value(); !s.bad && json.Unmarshal(data, out) != nil {
		s.fail()
	}
}

func (s *scanner) time() (t Time) {
	token := s.number()
	if s.bad {
		return t
	}
	whole := scanner{b: token}
	if ms := whole.int(); !whole.bad {
		t.Time = atMilli(ms)
	} else if t.UnmarshalJSON(token) != nil {
		s.fail()
	}
	return t
}

func (s *scanner) duration() (d Duration) {
	if token := s.number(); !s.bad && d.UnmarshalJSON(token) != nil {
		s.fail()
	}
	return d
}
