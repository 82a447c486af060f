{{/* The platform's table with the values that replace parts of it. */}}
{{- define "sidecar-cni.place" -}}
{{- $v := .Values -}}
{{- $place := get (.Files.Get "platforms.yaml" | fromYaml) $v.platform -}}
{{- range $key := list "confDir" "binDir" "runtimeSocket" "multusConfDir" -}}
{{- with get $v $key }}{{ $_ := set $place $key . }}{{ end -}}
{{- end -}}
{{- if hasPrefix "/var/run/" $place.runtimeSocket }}{{ $_ := set $place "runtimeSocket" (trimPrefix "/var" $place.runtimeSocket) }}{{ end -}}
{{- if not $v.mountParents }}{{ $_ := unset $place "parents" }}{{ end -}}
{{- if or (ne $v.way "auto") (not $place.way) }}{{ $_ := set $place "way" $v.way }}{{ end -}}
{{- if and (eq $place.way "standalone") (not $place.multusConfDir) -}}
{{- fail (printf "multusConfDir: way standalone needs it on %s, where each installation of Multus is told another place" $v.platform) -}}
{{- end -}}
{{- $place | toJson -}}
{{- end -}}

{{/* What is mounted for a directory: itself, or the parent of the platform's that it is in. */}}
{{- define "sidecar-cni.mount" -}}
{{- $mount := .dir -}}
{{- range .parents }}{{ if hasPrefix (print . "/") $mount }}{{ $mount = . }}{{ end }}{{ end -}}
{{- $mount -}}
{{- end -}}

{{/* What the agent does, and what it therefore needs. */}}
{{- define "sidecar-cni.needs" -}}
{{- $repairs := ne .Values.repair.mode "off" -}}
{{- $enters := or $repairs .Values.tool.live -}}
{{- $runs := hasPrefix "iptables-" .Values.backend -}}
{{- $capabilities := list "NET_ADMIN" "CHOWN" -}}
{{- if $enters }}{{ $capabilities = concat $capabilities (list "SYS_ADMIN" "SYS_PTRACE" "DAC_READ_SEARCH") }}{{ end -}}
{{- if .Values.tool.live }}{{ $capabilities = concat $capabilities (list "SETUID" "SETGID") }}{{ end -}}
{{- if $runs }}{{ $capabilities = append $capabilities "SYS_CHROOT" }}{{ end -}}
{{- if eq .Values.backend "iptables-legacy" }}{{ $capabilities = append $capabilities "NET_RAW" }}{{ end -}}
{{- $polices := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- $patches := or .Values.untaint .Values.nodeCondition .Values.labelPods -}}
{{- if and $patches (not $polices) -}}
{{- fail "untaint, nodeCondition, labelPods: this API server has no ValidatingAdmissionPolicy, without which every agent could change every node: leave them off; for helm template, which asks no API server, add --api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- end -}}
{{- if and .Values.labelPods (not $repairs) }}{{ fail "labelPods: repair.mode is off, so nobody looks which pods to label" }}{{ end -}}
{{- $guard := .Values.guard.mode -}}
{{- if not $repairs -}}
{{- if eq $guard "refuse" -}}
{{- fail "guard.mode: refuse enters pods' network namespaces, and repair.mode is off, with which the agent has no right to: set repair.mode to report, repair or evict, or guard.mode to off" -}}
{{- end -}}
{{- $guard = "off" -}}
{{- end -}}
{{- if .Values.guard.requiredPlugin -}}
{{- if eq $guard "off" -}}
{{- fail "guard.requiredPlugin: the guard is off, so pods with the annotation would get no container: leave it false, or set guard.mode to auto or refuse and repair.mode to anything but off" -}}
{{- end -}}
{{- if not $polices -}}
{{- fail "guard.requiredPlugin: this API server has no ValidatingAdmissionPolicy, which is what it would be: leave it false; for helm template, which asks no API server, add --api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- end -}}
{{- end -}}
{{- $socket := .Values.guard.socket -}}
{{- if hasPrefix "/var/run/" $socket }}{{ $socket = trimPrefix "/var" $socket }}{{ end -}}
{{- $capabilities = concat $capabilities .Values.extraCapabilities | uniq -}}
{{- dict "enters" $enters "runs" $runs "capabilities" $capabilities "guard" $guard "nriSocket" $socket | toJson -}}
{{- end -}}

{{/* Annotations that a pod with a sidecar needs on this cluster, so that it is redirected or not refused. */}}
{{- define "sidecar-cni.podNeeds" -}}
{{- $needs := dict -}}
{{- if .Values.guard.requiredPlugin }}{{ $_ := set $needs "required-plugins.noderesource.dev/pod" "[\"sidecar-cni\"]" }}{{ end -}}
{{- if eq (include "sidecar-cni.place" . | fromJson).way "standalone" -}}
{{- $_ := set $needs "k8s.v1.cni.cncf.io/networks" (printf "%s/%s" .Values.attachment.namespace .Values.attachment.name) -}}
{{- end -}}
{{- $needs | toJson -}}
{{- end -}}

{{/* Where an agent can be: each of the administrator's terms, and ours with it. Fargate's nodes and virtual ones have nothing
that an agent could be put on, and a pod that is never bound would hold up every rollout. */}}
{{- define "sidecar-cni.affinity" -}}
{{- $ours := list
  (dict "key" "kubernetes.io/os" "operator" "In" "values" (list "linux"))
  (dict "key" "kubernetes.io/arch" "operator" "In" "values" (list "amd64" "arm64"))
  (dict "key" "eks.amazonaws.com/compute-type" "operator" "NotIn" "values" (list "fargate"))
  (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet")) -}}
{{- $affinity := deepCopy . -}}
{{- $node := get $affinity "nodeAffinity" | default dict -}}
{{- $required := get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict -}}
{{- $terms := list -}}
{{- range (get $required "nodeSelectorTerms" | default (list dict)) -}}
{{- $terms = append $terms (set (deepCopy .) "matchExpressions" (concat $ours (get . "matchExpressions" | default list))) -}}
{{- end -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- set $affinity "nodeAffinity" $node | toYaml -}}
{{- end -}}

{{- define "sidecar-cni.labels" -}}
app.kubernetes.io/name: sidecar-cni
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "sidecar-cni.selector" -}}
app.kubernetes.io/name: sidecar-cni
app.kubernetes.io/component: agent
{{- end -}}

{{- define "sidecar-cni.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository: set it to the name that the image has in your registry, as in --set image.repository=registry.example/sidecar-cni; `make image` builds the image" -}}
{{- end -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "sidecar-cni.quota" -}}
{{- $asked := toString .Values.resourceQuota.enabled -}}
{{- $wanted := and (eq $asked "auto") (include "sidecar-cni.place" . | fromJson).quota (ne .Release.Namespace "kube-system") -}}
{{- if or $wanted (eq $asked "true") }}yes{{ end -}}
{{- end -}}

{{/* A duration such as 3m or 1m30s in seconds. */}}
{{- define "sidecar-cni.seconds" -}}
{{- $d := regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $sum := 0 -}}
{{- range $d }}{{ $sum = add $sum (mul (trimSuffix (regexFind "[hms]" .) . | int) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]" .))) }}{{ end -}}
{{- $sum -}}
{{- end -}}

{{/* The pods of Jobs, and of the test. Any node will do that is not known to be down. Without the last two, which match no taint,
the API server would add that those are put up with for five minutes. */}}
{{- define "sidecar-cni.tolerations" -}}
- {operator: Exists, effect: NoSchedule}
- {key: node.kubernetes.io/not-ready, operator: Equal, value: never, effect: NoExecute}
- {key: node.kubernetes.io/unreachable, operator: Equal, value: never, effect: NoExecute}
{{- end -}}

{{/* What Pod Security "restricted" asks of a container, beside what its pod says. */}}
{{- define "sidecar-cni.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
