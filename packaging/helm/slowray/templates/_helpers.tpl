{{- define "slowray.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "slowray.serviceAccount" -}}
{{ default (include "slowray.name" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "slowray.selector" -}}
app.kubernetes.io/name: slowray
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "slowray.labels" -}}
{{ include "slowray.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* The port of the page where others than the pod itself may reach it; else empty. */}}
{{- define "slowray.port" -}}
{{- $host := regexReplaceAll ":[0-9]+$" .Values.page.listen "" }}
{{- if and (ne .Values.page.listen "off") $host (ne $host "localhost") (ne $host "[::1]") (not (hasPrefix "127." $host)) }}
{{- regexFind "[0-9]+$" .Values.page.listen }}
{{- end }}
{{- end }}
