// Package withdraw takes the webhook configurations away before the webhooks go: a Pod that is
// created meanwhile is not refused because nobody answers.
//
//	err := withdraw.Run(ctx, config, withdraw.Settings{
//		Configurations: []string{"sidecar-cni-inject"}, Settle: 5 * time.Second,
//		Timeout: time.Minute,
//	}, log)
package withdraw

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
)

const (
	// tryAgain is after an API server that did not answer, or a right that is not there yet.
	tryAgain = time.Second
	// requestTimeout is for an API server that never answers: another one may.
	requestTimeout = 10 * time.Second
)

// Settings say what is taken away.
type Settings struct {
	Configurations []string      // MutatingWebhookConfigurations; one that is not there is no error
	Settle         time.Duration // how long is waited then, until each API server knows
	Timeout        time.Duration // for all of it
}

// Run does it once. It can be run again. It waits also where nothing was to be deleted: what
// another run has deleted may still be news to an API server.
func Run(ctx context.Context, config *rest.Config, s Settings, log *zap.Logger) error {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	client, err := api.Client(config, admissionv1.SchemeGroupVersion)
	if err != nil {
		return fmt.Errorf("withdraw webhooks: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	for _, name := range s.Configurations {
		var last error
		late := wait.PollUntilContextCancel(ctx, tryAgain, true,
			func(ctx context.Context) (bool, error) {
				err := client.Delete().Resource("mutatingwebhookconfigurations").Name(name).
					Do(ctx).Error()
				switch {
				case err == nil:
					log.Info("deleted webhook configuration", zap.String("configuration", name))
				case apierrors.IsNotFound(err):
					log.Info("found no webhook configuration", zap.String("configuration", name))
				default:
					if ctx.Err() == nil || last == nil { // that the time is over says less
						last = err
					}
					return false, nil
				}
				return true, nil
			})
		if late != nil {
			return fmt.Errorf("delete mutatingwebhookconfiguration %q: %w; kubectl delete "+
				"does it, too", name, cmp.Or(last, late))
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for API servers to hear of it: %w", ctx.Err())
	case <-time.After(s.Settle):
	}
	log.Info("withdrew webhooks")
	return nil
}
