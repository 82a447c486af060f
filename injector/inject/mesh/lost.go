package mesh

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// lostOfMesh are the keys of Istio's older versions.
func lostOfMesh(m *MeshConfig) map[string]any {
	return map[string]any{
		"mixerCheckServer":                  &m.MixerCheckServer,
		"mixerReportServer":                 &m.MixerReportServer,
		"mixerAddress":                      &m.MixerAddress,
		"disablePolicyChecks":               &m.DisablePolicyChecks,
		"disableMixerHttpReports":           &m.DisableMixerHttpReports,
		"policyCheckFailOpen":               &m.PolicyCheckFailOpen,
		"enableClientSidePolicyCheck":       &m.EnableClientSidePolicyCheck,
		"sidecarToTelemetrySessionAffinity": &m.SidecarToTelemetrySessionAffinity,
		"disableReportBatch":                &m.DisableReportBatch,
		"reportBatchMaxEntries":             &m.ReportBatchMaxEntries,
		"reportBatchMaxTime":                &m.ReportBatchMaxTime,
		"authPolicy":                        &m.AuthPolicy,
		"rdsRefreshDelay":                   &m.RdsRefreshDelay,
		"sdsUdsPath":                        &m.SdsUdsPath,
		"sdsRefreshDelay":                   &m.SdsRefreshDelay,
		"enableSdsTokenMount":               &m.EnableSdsTokenMount,
		"sdsUseK8sSaJwt":                    &m.SdsUseK8SSaJwt,
		"terminationDrainDuration":          &m.TerminationDrainDuration,
	}
}

// lostOfProxy are the keys of Istio's older versions in defaultConfig.
func lostOfProxy(c *ProxyConfig) map[string]any {
	return map[string]any{
		"connectTimeout":         &c.ConnectTimeout,
		"parentShutdownDuration": &c.ParentShutdownDuration,
	}
}

// setLost writes a value into a field that field points to.
func setLost(field, value any) error {
	switch field := field.(type) {
	case *string:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("want text, got %.100q; put it into quotes", fmt.Sprint(value))
		}
		*field = text
	case *bool:
		truth, ok := value.(bool)
		if !ok {
			return fmt.Errorf("want true or false, got %.100q", fmt.Sprint(value))
		}
		*field = truth
	case *uint32:
		number, ok := value.(int64)
		if !ok || number < 0 || number > math.MaxUint32 {
			return fmt.Errorf("want a number from 0 to %d, got %.100q", uint32(math.MaxUint32),
				fmt.Sprint(value))
		}
		*field = uint32(number)
	case **durationpb.Duration:
		text, _ := value.(string)
		duration, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("want a duration such as 45s, got %.100q", fmt.Sprint(value))
		}
		*field = durationpb.New(duration)
	default:
		return errors.New("nobody knows how to read this key") // a test reads all of them
	}
	return nil
}
