package initflags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const (
	maxIDs = 64
	maxID  = 1<<32 - 2 // the kernel keeps the highest number for "nobody"

	wantPort = "a port from 1 to 65535"
	wantID   = "a number from 0 to 4294967294; names are not known outside of the container"
	wantMark = "a number from 1 to 4294967294, in decimal digits"
)

func (v Value) mistake(item, want string) redirect.Mistakes {
	return redirect.Mistakes{{Key: v.Key, Item: item, Want: want}}
}

// port reads a port of the proxy, if one is given.
func (v Value) port(to *uint16) redirect.Mistakes {
	if v.Text == "" {
		return nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(v.Text), 10, 16)
	if err != nil || n == 0 {
		return v.mistake(v.Text, wantPort)
	}
	*to = uint16(n)
	return nil
}

// number reads a mark or a routing table, if one is given.
func (v Value) number(to *uint32) redirect.Mistakes {
	if v.Text == "" {
		return nil
	}
	n, ok := parseID(v.Text)
	if !ok || n == 0 {
		return v.mistake(v.Text, wantMark)
	}
	*to = n
	return nil
}

// mode knows no NONE: who calls istio-init wants rules. Without a mode it redirects.
func (v Value) mode(to *redirect.Mode) redirect.Mistakes {
	*to = redirect.ModeRedirect
	if v.Text != "" {
		*to = redirect.Mode(v.Text)
	}
	if *to != redirect.ModeRedirect && *to != redirect.ModeTProxy {
		return v.mistake(v.Text, "REDIRECT or TPROXY")
	}
	return nil
}

// ids reads the proxy's users or groups, if any are given: rules for nobody would send what the
// proxy sends back to it.
func (v Value) ids(to *[]uint32) redirect.Mistakes {
	if strings.Trim(v.Text, ", \t\n") == "" {
		return nil
	}
	items := strings.Split(v.Text, ",")
	if len(items) > maxIDs {
		return v.mistake(fmt.Sprintf("a list of %d items", len(items)),
			fmt.Sprintf("at most %d", maxIDs))
	}
	var ids []uint32
	var mistakes redirect.Mistakes
	for _, item := range items {
		id, ok := parseID(item)
		switch {
		case ok:
			ids = append(ids, id)
		case strings.TrimSpace(item) != "": // istio-init drops empty items of all lists
			mistakes = append(mistakes, v.mistake(strings.TrimSpace(item), wantID)...)
		}
	}
	slices.Sort(ids)
	*to = slices.Compact(ids)
	return mistakes
}

func parseID(item string) (id uint32, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 32)
	return uint32(n), err == nil && n <= maxID
}
