{{- define "cadastre.labels" -}}
{{ include "cadastre.selectorName" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
cluster.x-k8s.io/provider: ipam-cadastre
{{- end }}

{{- /* The operator is installed once in a cluster, so neither names nor selectors have the
name of the release. */ -}}
{{- define "cadastre.selectorName" -}}
app.kubernetes.io/name: cadastre
{{- end }}

{{- define "cadastre.selector" -}}
{{ include "cadastre.selectorName" . }}
control-plane: controller-manager
{{- end }}

{{- define "cadastre.serviceAccountName" -}}
{{- required "serviceAccount.name is empty: name the service account under which the operator runs" .Values.serviceAccount.name }}
{{- end }}

{{- define "cadastre.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The fields of the Pods of all Deployments: where they can run, and how they get the image. */ -}}
{{- define "cadastre.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The flags of the container, one a line. Numbers are integers, also where YAML has made
floating-point numbers of them. */ -}}
{{- define "cadastre.args" -}}
{{- $flags := omit .Values.flags "webhook-cert-source" -}}
{{- if .Values.inClusterPools.enabled -}}
{{- $flags = merge (dict "in-cluster-pools" true) $flags -}}
{{- if not (index $flags "feature-gates") -}}
{{- $flags = merge (dict "feature-gates" "PoolRanges=true") $flags -}}
{{- end -}}
{{- end -}}
{{- $source := index .Values.flags "webhook-cert-source" -}}
{{- if .Values.certManager.enabled -}}
{{- if and $source (ne $source "secret") -}}
{{- fail (printf "flags.webhook-cert-source is %s, and certManager.enabled is true: leave out one of them" $source) -}}
{{- end -}}
{{- $source = "secret" -}}
{{- end -}}
{{- range $name := keys $flags | sortAlpha }}
{{- $value := index $flags $name }}
{{- if ne (kindOf $value) "invalid" }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end }}
{{- with $source }}
- {{ printf "--webhook-cert-source=%s" . | quote }}
{{- end }}
{{- end }}

{{- /* The port of a flag that is an address, such as :8443. */ -}}
{{- define "cadastre.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end }}

{{- /* Fails where the values about metrics cannot all be had. */ -}}
{{- define "cadastre.checkMetrics" -}}
{{- $monitored := or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled are true, and every replica would be scraped twice: leave out one of them" -}}
{{- end -}}
{{- if and $monitored (index .Values.flags "insecure-diagnostics") -}}
{{- fail "flags.insecure-diagnostics is true, and the monitor scrapes over TLS: leave out one of them" -}}
{{- end -}}
{{- end }}
