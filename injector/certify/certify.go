// Package certify makes the authority of the webhooks' certificates, and has the webhook
// configurations name it.
//
//	err := certify.Run(ctx, config, certify.Settings{
//		Secret: types.NamespacedName{Namespace: "kube-system", Name: "sidecar-cni-injector-ca"},
//		Configurations: []string{"sidecar-cni-inject"}, Timeout: 2 * time.Minute,
//	}, log)
//
// An authority is replaced when less than two years of its ten are left. Nobody is refused
// meanwhile: the new one is put beside the old into the Secret, the webhook configurations get
// both, and only then does the Secret say that the new one signs. The old one goes from both at the
// first run two days later.
//
//	ca.crt        tls.crt and tls.key   next.key
//	old           of old
//	new and old   of old                of new     then the webhook configurations get ca.crt
//	new and old   of the new
//	only new      of new                           two days later
//
// The Secret alone says how far it is. So a run can be killed anywhere, and beside others.
//
// Be aware: a Secret that cannot be read as an authority is left as it is, since it may be somebody
// else's. Run says that it is to be deleted.
package certify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/api"
)

const (
	// tryAgain is after an API server that did not answer, or a right that is not there yet: both
	// may come with the Job.
	tryAgain = time.Second
	// requestTimeout is for an API server that never answers: another one may.
	requestTimeout = 10 * time.Second
	// settle is until each API server has heard of a webhook configuration that changed.
	settle = 5 * time.Second
	// renewBefore is how much of an authority's life has to be left.
	renewBefore = 2 * 365 * 24 * time.Hour
	// trustAfter is how long an authority is trusted after another was made: what it signed lives
	// for a day.
	trustAfter = 48 * time.Hour
)

// manager is whom the API server names as the writer of what Run changes.
const manager = "sidecar-cni-certify"

// Settings say what is certified.
type Settings struct {
	Secret         types.NamespacedName // of the authority; made if there is none
	Configurations []string             // MutatingWebhookConfigurations, those that are there
	Timeout        time.Duration        // for all of it
}

// A run has what its steps need.
type run struct {
	of       Settings
	secrets  *rest.RESTClient
	webhooks *rest.RESTClient
	log      *zap.Logger
}

// errAgain is returned where somebody else was faster.
var errAgain = errors.New("it was changed meanwhile")

// Run does it once. It can be run again at any time, and beside itself.
func Run(ctx context.Context, config *rest.Config, s Settings, log *zap.Logger) error {
	r := run{of: s, log: log}
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	var err error
	r.secrets, err = api.Client(config, corev1.SchemeGroupVersion, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("certify webhooks: %w", err)
	}
	r.webhooks, err = api.Client(config, admissionv1.SchemeGroupVersion,
		&admissionv1.MutatingWebhookConfiguration{})
	if err != nil {
		return fmt.Errorf("certify webhooks: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var last error
	late := wait.PollUntilContextCancel(ctx, tryAgain, true,
		func(ctx context.Context) (bool, error) {
			err := r.once(ctx)
			var mistake *spoiledError
			switch {
			case err == nil, errors.As(err, &mistake):
				last = err
				return true, err
			case ctx.Err() == nil && (last == nil || last.Error() != err.Error()):
				log.Warn("did not certify webhooks yet, trying again", zap.Error(err))
			}
			if ctx.Err() == nil || last == nil { // that the time is over says less
				last = err
			}
			return false, nil
		})
	if late != nil {
		return fmt.Errorf("certify webhooks: %w", cmp.Or(last, late))
	}
	return nil
}

// once takes all steps that are left.
func (r run) once(ctx context.Context) error {
	configurations, err := r.configurations(ctx)
	if err != nil {
		return err
	}
	state, err := r.authorities(ctx, trusted(configurations))
	if err != nil {
		return err
	}
	for i := range configurations {
		if err := r.publish(ctx, &configurations[i], state.bundle()); err != nil {
			return err
		}
	}
	if state.next != nil {
		err = r.promote(ctx, state)
	}
	if err == nil {
		err = r.confirm(ctx, state)
	}
	if err == nil {
		r.report(configurations, state)
	}
	return err
}

// report says what is so now.
func (r run) report(found []admissionv1.MutatingWebhookConfiguration, s *state) {
	var names, missing []string
	for i := range found {
		names = append(names, found[i].Name)
	}
	for _, name := range r.of.Configurations {
		if !slices.Contains(names, name) {
			missing = append(missing, name)
		}
	}
	r.log.Info("certified webhooks", zap.Strings("configurations", names),
		zap.Strings("missing", missing), zap.Stringer("secret", r.of.Secret),
		zap.Time("expiry", s.signer.Certificate().NotAfter))
}

// promote lets the new authority sign, after everybody has come to trust it.
func (r run) promote(ctx context.Context, s *state) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	s.signer, s.next = s.next, nil
	if err := r.write(ctx, s); err != nil {
		return err
	}
	r.log.Info("changed authority", zap.Time("expiry", s.signer.Certificate().NotAfter))
	return nil
}

// confirm looks whether what was published is still in the Secret: another run may have come
// between.
func (r run) confirm(ctx context.Context, published *state) error {
	now, err := r.read(ctx)
	if err != nil {
		return err
	}
	if string(now.bundle()) != string(published.bundle()) {
		return fmt.Errorf("secret %v: %w", r.of.Secret, errAgain)
	}
	return nil
}
