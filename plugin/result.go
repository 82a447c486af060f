package main

import (
	"bytes"
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types/create"
)

// result returns what ADD answers: the result of the plugins before, untouched. A first plugin, as
// a standalone network's, answers with an empty one.
func (c call) result() ([]byte, error) {
	if c.conf.PrevResult == nil {
		return json.Marshal(map[string]string{"cniVersion": c.conf.Version})
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.conf.PrevResult, &fields); err != nil {
		return nil, brokenResult.fail("read prevResult: %w", err)
	}
	var version string
	if raw, ok := fields["cniVersion"]; ok && json.Unmarshal(raw, &version) != nil {
		return nil, brokenResult.fail("read prevResult: cniVersion: %s: want a string", raw)
	}
	switch version {
	case c.conf.Version:
		return c.conf.PrevResult, nil
	case "":
		fields["cniVersion"], _ = json.Marshal(c.conf.Version)
		return json.Marshal(fields)
	}
	return c.convert(version)
}

// convert brings a result of another version than the call's into that of the call; libcni never
// passes such.
func (c call) convert(from string) ([]byte, error) {
	previous, err := create.Create(from, c.conf.PrevResult)
	if err != nil {
		return nil, brokenResult.fail("read prevResult: %w", err)
	}
	converted, err := previous.GetAsVersion(c.conf.Version)
	if err != nil {
		return nil, brokenResult.fail("convert prevResult to version %s: %w", c.conf.Version, err)
	}
	var out bytes.Buffer
	if err := converted.PrintTo(&out); err != nil {
		return nil, brokenResult.fail("write result: %w", err)
	}
	return out.Bytes(), nil
}
