// Package injection is a configuration of injection to start from: a template for a proxy of any
// image, which needs no rights and passes Pod Security "restricted".
//
//	cfg, err := config.Load(config.Sources{
//		Injector: config.Source{Name: "config.yaml", Data: injection.Config},
//		Mesh:     config.Source{Name: "mesh.yaml", Data: injection.Mesh},
//		Values:   config.Source{Name: "values.yaml", Data: injection.Values},
//	})
//
// Be aware: the image that Values names does not exist.
package injection

import _ "embed"

// Config is the data of key config of the ConfigMap istio-sidecar-injector.
//
//go:embed config.yaml
var Config []byte

// Mesh is the data of key mesh of the ConfigMap istio.
//
//go:embed mesh.yaml
var Mesh []byte

// Values is the data of key values of the ConfigMap istio-sidecar-injector.
//
//go:embed values.yaml
var Values []byte
