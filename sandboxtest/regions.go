package sandboxtest

import (
	"net/http"
	"slices"
	"strings"
)

const defaultRegion = "iad1"

// regions are those that the service has.
var regions = []string{
	"iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1", "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1", "hkg1",
	"syd1", "yul1", "hnd1", "kix1",
}

func checkRegion(field, region string) error {
	if !slices.Contains(regions, region) {
		return invalid("`%s` should be equal to one of the allowed values \"%s\".", field, strings.Join(regions, ", "))
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
