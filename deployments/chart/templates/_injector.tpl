{{/* Whose configuration it is, and which namespaces the webhooks leave alone; and what does not go together. */}}
{{- define "sidecar-cni.injector" -}}
{{- $v := .Values.injector -}}
{{- $ns := .Release.Namespace -}}
{{- $own := printf "%s/sidecar-cni-injector" $ns -}}
{{- $config := $v.configMaps.injector | default $own -}}
{{- $mesh := $v.configMaps.mesh | default $own -}}
{{- if $v.configMaps.injector -}}
{{- if or $v.config $v.values -}}
{{- fail (printf "injector.config, injector.values: they would be of no use, since injector.configMaps.injector has the configuration come from %s: leave them empty, or that" $config) -}}
{{- end -}}
{{- else if and $v.inject.enabled (not $v.config) (not (dig "global" "proxy" "image" "" $v.values)) -}}
{{- fail "injector.values.global.proxy.image: set it to the image of your proxy, as in --set injector.values.global.proxy.image=registry.example/proxy:1.0; where a control plane has its configuration in a ConfigMap, set injector.configMaps.injector and .mesh instead" -}}
{{- end -}}
{{- $inbound := dig "redirect" "ports" "inbound" 15006 .Values.pluginConf | int -}}
{{- if and $v.inject.enabled (eq $v.guard "validation") (ne $inbound 15006) (not (or $v.config $v.configMaps.injector)) -}}
{{- fail (printf "injector.guard: validation would have no pod start, since it goes by what a pod says, and pluginConf.redirect.ports.inbound is %d: leave that at 15006, or have a template of your own (injector.config) put the annotation sidecar-cni.io/inboundPort into pods, or set injector.guard to none" $inbound) -}}
{{- end -}}
{{- if and $v.configMaps.mesh $v.mesh -}}
{{- fail (printf "injector.mesh: it would be of no use, since injector.configMaps.mesh has the mesh's configuration come from %s: leave it empty, or that" $mesh) -}}
{{- end -}}
{{- if eq (int $v.port) (int $v.statusPort) -}}
{{- fail (printf "injector.port, injector.statusPort: both are %d: set one of them to another port" (int $v.port)) -}}
{{- end -}}
{{- include "sidecar-cni.certificates" . -}}
{{- $maps := dict $ns list -}}
{{- range list $config $mesh -}}
{{- $of := splitList "/" . -}}
{{- $_ := set $maps (first $of) (append (get $maps (first $of) | default list) (last $of) | uniq) -}}
{{- end -}}
{{- $never := concat (list "kube-system" $ns) .Values.excludeNamespaces | uniq | sortAlpha -}}
{{- dict "config" $config "mesh" $mesh "maps" $maps "never" $never "own" $own | toJson -}}
{{- end -}}

{{/* Fails where the settings of certificates do not go together. */}}
{{- define "sidecar-cni.certificates" -}}
{{- $c := .Values.injector.certificates -}}
{{- if and $c.issuer (ne $c.mode "certManager") -}}
{{- fail (printf "injector.certificates.issuer: it is for mode certManager, and the mode is %s: leave it empty, or set the mode" $c.mode) -}}
{{- end -}}
{{- if and (or $c.secret $c.caBundle) (ne $c.mode "files") -}}
{{- fail (printf "injector.certificates.secret, injector.certificates.caBundle: they are for mode files, and the mode is %s: leave them empty, or set the mode" $c.mode) -}}
{{- end -}}
{{- if and (eq $c.mode "files") (not (and $c.secret $c.caBundle)) -}}
{{- fail "injector.certificates: mode files needs secret, the name of a Secret of type kubernetes.io/tls, and caBundle, by which the API server verifies its certificate" -}}
{{- end -}}
{{- end -}}

{{- define "sidecar-cni.injectorSelector" -}}
app.kubernetes.io/name: sidecar-cni
app.kubernetes.io/component: injector
{{- end -}}

{{/* Annotations of an object that is there only while a Job runs that needs it. */}}
{{- define "sidecar-cni.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The metadata of such an object: .name, .namespaced, .events, .weight, .root. */}}
{{- define "sidecar-cni.hookMetadata" -}}
name: {{ .name }}
{{- if .namespaced }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "sidecar-cni.labels" .root | nindent 2 }}
annotations:
  {{- include "sidecar-cni.hook" . | nindent 2 }}
{{- end -}}

{{/* The spec of a Job that runs one command of the injector: .command, .account, .args, .deadline, .hostNetwork, .root. */}}
{{- define "sidecar-cni.job" -}}
backoffLimit: 2
activeDeadlineSeconds: {{ .deadline }}
template:
  metadata:
    labels:
      app.kubernetes.io/name: sidecar-cni
      app.kubernetes.io/component: {{ .command }}
    annotations:
      sidecar.istio.io/inject: "false"
  spec:
    serviceAccountName: {{ .account }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    restartPolicy: Never
    {{- if .hostNetwork }}
    hostNetwork: true
    {{- end }}
    affinity:
      {{- include "sidecar-cni.affinity" dict | nindent 6 }}
    tolerations:
    {{- include "sidecar-cni.tolerations" . | nindent 4 }}
    {{- with .root.Values.image.pullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      runAsNonRoot: true
      seccompProfile:
        type: RuntimeDefault
    containers:
    - name: {{ .command }}
      image: {{ include "sidecar-cni.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [/sidecar-cni-injector]
      args:
      - {{ .command }}
      {{- toYaml .args | nindent 6 }}
      resources:
        requests: {cpu: 10m, memory: 20Mi}
        limits: {memory: 100Mi}
      terminationMessagePolicy: FallbackToLogsOnError
      securityContext:
        {{- include "sidecar-cni.restricted" . | nindent 8 }}
{{- end -}}
