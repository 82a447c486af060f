package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
)

// evaluate says what the node's state is, whatever was done. An error of the pass is a state that
// it could not mend.
func (i *installer) evaluate(ctx context.Context, err error) state {
	i.seen, _ = i.fingerprint() // before, so that what others write from here on is news
	s := i.onDisk()
	if s.ready() && s.way != chain.Standalone {
		s = i.loaded(ctx, s)
	}
	t, isTrouble := errors.AsType[*trouble](err)
	switch {
	case err == nil:
	case isTrouble && t.reason == noAccess && !s.ready(): // which matters less
	default:
		s.reason, s.text = reasonOf(err), err.Error()
	}
	return s
}

// onDisk is what the files come to.
func (i *installer) onDisk() state {
	spec, err := i.spec()
	if err != nil {
		return state{reason: badSettings, text: err.Error()}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return state{reason: disk(err).reason, text: err.Error()}
	}
	found := chain.Evaluate(dir, spec)
	if found.Effective && found.Way == chain.Standalone {
		if dir, err = i.readMultus(); err != nil {
			return state{reason: disk(err).reason, text: err.Error()}
		}
		found = chain.EvaluateStandalone(dir, spec)
	}
	return state{reason: reason(found.Reason), text: found.Text, way: found.Way, file: found.Primary}
}

// loaded asks the runtime, whose word counts. One that cannot be asked is believed to do what its
// documentation says. Where another one answers, the settings are wrong about the runtime, and
// perhaps about its directories.
func (i *installer) loaded(ctx context.Context, s state) state {
	runtime, err := i.ask(ctx)
	if _, ok := errors.AsType[*notOurs](err); ok {
		s.reason, s.text = otherRuntime, err.Error()
		return s
	}
	if err != nil {
		i.log.Debug("container runtime not reached", zap.Error(err))
		return s
	}
	i.runtime = runtime
	if known, runs := runtime.Runs(pluginType); known && !runs {
		i.owed = true
		s.reason = notLoaded
		s.text = fmt.Sprintf("%s has our entry, and %s has not loaded it: %s", s.file, runtime.Name, runtime.LastLoad)
	}
	return s
}
