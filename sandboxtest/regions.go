package sandboxtest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

const defaultRegion = "iad1"

func checkRegion(field, region string) error {
	if !slices.Contains(wire.Regions, region) {
		return invalid("`%s` should be equal to one of the allowed values \"%s\".", field, strings.Join(wire.Regions, ", "))
	}
	return nil
}

// checkPlace checks what settings have to do with each other.
func (c *settings) checkPlace() error {
	for i, r := range c.FailoverRegions {
		if err := checkRegion("failoverRegions", r); err != nil {
			return err
		}
		if r == c.Region {
			return badRequest("`failoverRegions` should NOT contain the region '%s'.", r)
		}
		if slices.Contains(c.FailoverRegions[:i], r) {
			return invalid("`failoverRegions` should NOT have duplicate items.")
		}
	}
	return nil
}

// reach reports whether a snapshot lies where the sandbox is.
func (c *settings) reach(sn *snapshot) error {
	if !slices.Contains(sn.regions, c.Region) {
		return fail(http.StatusUnprocessableEntity, "snapshot_region_mismatch", "The snapshot is not available in the region '%s'.", c.Region)
	}
	return nil
}
