package store

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const defaultRegion = "iad1"

// CheckRegion refuses an unknown region in a field.
func CheckRegion(field, region string) error {
	if !slices.Contains(wire.Regions, region) {
		return reply.Invalid("`%s` should be equal to one of the allowed values \"%s\".", field, strings.Join(wire.Regions, ", "))
	}
	return nil
}

// CheckPlace checks that the settings about regions agree.
func (c *Settings) CheckPlace() error {
	for i, r := range c.FailoverRegions {
		if err := CheckRegion("failoverRegions", r); err != nil {
			return err
		}
		if r == c.Region {
			return reply.BadRequest("`failoverRegions` should NOT contain the region '%s'.", r)
		}
		if slices.Contains(c.FailoverRegions[:i], r) {
			return reply.Invalid("`failoverRegions` should NOT have duplicate items.")
		}
	}
	return nil
}

// checkSnapshotRegion returns an error unless a snapshot is in the sandbox's region.
func (c *Settings) checkSnapshotRegion(sn *Snapshot) error {
	if !slices.Contains(sn.rec.Regions, c.Region) {
		return reply.Fail(http.StatusUnprocessableEntity, "snapshot_region_mismatch", "The snapshot is not available in the region '%s'.", c.Region)
	}
	return nil
}
