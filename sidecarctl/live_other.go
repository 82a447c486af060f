//go:build !linux

package main

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

func (s *spot) live(context.Context, talkFlags, namedTalk, trace.Leg) (talk, error) {
	return talk{}, here()
}

func (s *spot) wait(context.Context, talkFlags, func(talk) error) error { return here() }

func (s *spot) readAddresses() error { return here() }

func (s *spot) rules(context.Context, string) (*kernelListing, error) { return nil, here() }
