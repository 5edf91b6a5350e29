package sandbox

import (
	"slices"

	"github.com/go-vercel/sandbox/internal/wire"
)

// NetworkPolicyMode is a network policy in one word.
type NetworkPolicyMode string

// The policies of one word.
const (
	NetworkAllowAll NetworkPolicyMode = "allow-all"
	NetworkDenyAll  NetworkPolicyMode = "deny-all"
)

// NetworkPolicy restricts what a sandbox can reach.
type NetworkPolicy struct {
	// Mode allows or denies everything; empty when the lists decide.
	Mode NetworkPolicyMode
	// Allow lists domains, with "*." for any subdomain.
	Allow []string
}

func (p *NetworkPolicy) clone() *NetworkPolicy {
	if p == nil {
		return nil
	}
	return &NetworkPolicy{Mode: p.Mode, Allow: slices.Clone(p.Allow)}
}

func (p *NetworkPolicy) toWire() (any, error) {
	switch p.Mode {
	case NetworkAllowAll, NetworkDenyAll:
		return map[string]NetworkPolicyMode{"mode": p.Mode}, nil
	case "":
		return map[string][]string{"allow": p.Allow}, nil
	}
	return nil, invalid("NetworkPolicy.Mode", "%q is not a mode", p.Mode)
}

func networkPolicyFromWire(w *wire.NetworkPolicy) *NetworkPolicy {
	if w == nil {
		return nil
	}
	p := &NetworkPolicy{Allow: slices.Clone(w.AllowedDomains)}
	if w.Mode != "custom" {
		p.Mode = NetworkPolicyMode(w.Mode)
	}
	return p
}
