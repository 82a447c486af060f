// Package configuration keeps in force what injection is configured by: it reads files or
// ConfigMaps, again whenever they change. What cannot be loaded leaves the last in force.
//
//	c := configuration.New(configuration.Options{
//		Files: &configuration.Files{Injector: "/etc/injector/config"}, Report: report,
//		Metrics: registry, Log: log,
//	})
//	go c.Run(ctx)
//	cfg, err := c.Current()
//
// Be aware: documents that belong together change one after the other. A configuration is called
// refused only when nothing better has come for two seconds.
package configuration

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/follow"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
)

const (
	// refuseAfter is how long documents may be wrong before anybody hears of it: of two ConfigMaps
	// that belong together one is written first.
	refuseAfter = 2 * time.Second
	// askAgain is while the API server has not answered.
	askAgain = time.Second
)

// Files are where the documents are; "" for one that there is not.
type Files struct {
	Injector string // key config of the ConfigMap istio-sidecar-injector
	Mesh     string // key mesh of the ConfigMap istio
	Values   string // key values of the ConfigMap istio-sidecar-injector
}

// ConfigMaps are where the documents are in the cluster.
type ConfigMaps struct {
	Injector types.NamespacedName // its keys config and values
	Mesh     types.NamespacedName // its key mesh; may be the same as Injector, or the zero name
	Client   *rest.Config         // by which they are read
}

// Options are what a Configuration reads and reports to.
type Options struct {
	Files      *Files      // either these
	ConfigMaps *ConfigMaps // or these
	// Report is called with each configuration that was refused, and with nil when one is in force
	// again. It must not wait. Nil: nobody is told.
	Report  func(error)
	Metrics prometheus.Registerer // of its gauges
	Log     *zap.Logger           // of what was loaded and refused
}

// Configuration is what is in force.
type Configuration struct {
	of            Options
	valid, loaded prometheus.Gauge

	// Run's own.
	read    config.Sources // what was loaded or refused last
	wrong   error          // why it was refused; nil if it was loaded
	since   time.Time      // when it began to be wrong
	refused string         // what was reported last; "" if that is over

	mu      sync.Mutex
	current *config.Config
	why     error // why there is none
}

// New returns one that has loaded nothing yet.
func New(o Options) *Configuration {
	if o.Report == nil {
		o.Report = func(error) {}
	}
	metrics := promauto.With(o.Metrics)
	return &Configuration{
		of:  o,
		why: errors.New("load configuration: nothing was read yet"),
		valid: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_injector_configuration_valid",
			Help: "Whether what injection is configured by could be loaded as it is now, 1 or 0. " +
				"If it could not, the last that could is in force.",
		}),
		loaded: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_injector_configuration_loaded_timestamp_seconds",
			Help: "When the configuration in force was loaded, in seconds since 1970.",
		}),
	}
}

// Run loads it whenever it changes, until ctx ends. It returns an error if it cannot begin.
func (c *Configuration) Run(ctx context.Context) error {
	from, err := c.of.source()
	if err != nil {
		return err
	}
	changes := follow.NewChanges()
	var following sync.WaitGroup
	following.Go(func() { from.run(ctx, changes.Note) })
	changes.Handle(ctx, func() time.Duration { return c.load(from) })
	following.Wait()
	return nil
}

// Current returns what is in force, or says why nothing is yet.
func (c *Configuration) Current() (*config.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, c.why
	}
	return c.current, nil
}

// load brings into force what there is now. It returns when it is to be called again, 0 if not
// before something changes.
func (c *Configuration) load(from source) time.Duration {
	documents, err := from.read()
	if errors.Is(err, follow.ErrPending) {
		c.explain(err)
		return askAgain
	}
	// The same mistakes may be worded in another order each time.
	known := c.wrong == nil || c.refused == c.wrong.Error()
	if err == nil && known && reflect.DeepEqual(documents, c.read) {
		return 0
	}
	var loaded *config.Config
	if err == nil {
		loaded, err = config.Load(documents)
	}
	c.read = documents
	if err != nil {
		return c.refuse(err)
	}
	c.accept(loaded)
	return 0
}

func (c *Configuration) accept(loaded *config.Config) {
	c.mu.Lock()
	before := c.current
	c.current = loaded
	c.mu.Unlock()
	c.wrong, c.since = nil, time.Time{}
	c.valid.Set(1)
	c.loaded.SetToCurrentTime()
	if before == nil || before.Version != loaded.Version || c.refused != "" ||
		!reflect.DeepEqual(before.Warnings, loaded.Warnings) {
		c.of.Log.Info("loaded configuration", zap.String("version", loaded.Version),
			zap.Strings("warnings", loaded.Warnings))
	}
	if c.refused != "" {
		c.refused = ""
		c.of.Report(nil)
	}
}

// refuse leaves the last in force, and says so once for each mistake, if it lasts.
func (c *Configuration) refuse(err error) time.Duration {
	c.explain(err)
	now := time.Now()
	if c.wrong == nil {
		c.since = now
	}
	c.wrong = err
	if left := refuseAfter - now.Sub(c.since); left > 0 {
		return left
	}
	if c.refused == err.Error() {
		return 0
	}
	c.refused = err.Error()
	c.valid.Set(0)
	c.of.Log.Error("refused configuration", zap.Error(err), zap.String("remedy", c.remedy()))
	c.of.Report(err)
	return 0
}

func (c *Configuration) remedy() string {
	if current, _ := c.Current(); current != nil {
		return fmt.Sprintf("correct it; until then version %s stays in force", current.Version)
	}
	return "correct it; until then nothing can be injected"
}

// explain keeps why there is no configuration in force.
func (c *Configuration) explain(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = err
}
