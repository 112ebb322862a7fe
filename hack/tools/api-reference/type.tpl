{{- define "type" -}}
{{- $type := .type -}}
{{- /* The rules of the type and of the type that is embedded in it, of which the name is the end of its own. */ -}}
{{- $rules := list -}}
{{- range .gv.SortedTypes -}}
{{- if hasSuffix .Name $type.Name -}}
{{- range index .Markers "kubebuilder:validation:XValidation" -}}{{- $rules = append $rules . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{ .heading }} {{ $type.Name }}

{{ $type.Doc }}
{{- $users := list }}
{{- range $type.SortedReferences }}{{ if not (has .Name (list "PoolSpec" "HostSettings")) }}{{ $users = append $users (printf "[%s](#%s)" .Name (lower .Name)) }}{{ end }}{{ end }}
{{- if $users }}

Used by {{ join ", " $users }}.
{{- end }}
{{- range $rules }}
{{- if not .FieldPath }}

Rule: {{ .Message }}.
{{- end }}
{{- end }}
{{- if $type.Members }}

| field | type | description | default | validation |
|---|---|---|---|---|
{{- if $type.GVK }}
| `apiVersion` | string | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` |  | Required |
| `kind` | string | `{{ $type.GVK.Kind }}` |  | Required |
{{- end }}
{{- range $type.Members }}
{{- $doc := regexReplaceAll "\\s+" .Doc " " | replace "|" "\\|" | trim }}
{{- $default := .Default }}
{{- if not $default }}{{ $default = regexFind "Default: .*?\\.( |$)" $doc | trimPrefix "Default: " | trim | trimSuffix "." }}{{ else }}{{ $default = print "`" $default "`" }}{{ end }}
| `{{ .Name }}` | {{ template "fieldtype" . }} | {{ if eq .Name "metadata" }}As of all objects of Kubernetes.{{ else }}{{ $doc }}{{ end }} | {{ $default }} | {{ template "validation" (dict "field" . "rules" $rules) }} |
{{- end }}
{{- end }}
{{- if $type.EnumValues }}
{{- $described := false }}
{{- range $type.EnumValues }}{{ if .Doc }}{{ $described = true }}{{ end }}{{ end }}
{{- if $described }}

| value | |
|---|---|
{{- range $type.EnumValues }}
| `{{ .Name }}` | {{ regexReplaceAll "^\\w+: " (regexReplaceAll "\\s+" .Doc " " | trim) "" }} |
{{- end }}
{{- else }}

Values:{{ range $i, $value := $type.EnumValues }}{{ if $i }},{{ end }} `{{ $value.Name }}`{{ end }}.
{{- end }}
{{- end }}
{{ end -}}

{{- define "fieldtype" -}}
{{- $name := markdownRenderType .Type -}}
{{- if contains "k8s.io/apimachinery/pkg/util/intstr" .Type.Package -}}integer or string
{{- else if contains "kubernetes.io/docs" $name -}}
{{- regexReplaceAll "\\[(\\w+)\\]\\([^)]*\\)" $name "${1}" -}}
{{- else -}}{{ $name }}{{- end -}}
{{- end -}}

{{- define "validation" -}}
{{- $parts := list -}}
{{- range .field.Validation -}}
{{- if hasPrefix "Required" . -}}{{- $parts = prepend $parts "Required" -}}
{{- else if or (hasPrefix "Optional" .) (contains "XValidation" .) -}}
{{- else -}}
{{- $parts = append $parts (regexReplaceAll "^items:" . "each " | replace "MaxLength" "max length" | replace "MinLength" "min length" | replace "Maximum" "max" | replace "Minimum" "min" | replace "MaxItems" "max items" | replace "MaxProperties" "max entries" | replace "Pattern" "pattern" | replace "Enum: [" "one of [" | replace "|" "\\|") -}}
{{- end -}}
{{- end -}}
{{- $path := print "." .field.Name -}}
{{- $rules := list -}}
{{- range index .field.Markers "kubebuilder:validation:XValidation" -}}
{{- /* The field spec has the rules of its type, which stand there. */ -}}
{{- if and (not .FieldPath) (ne $path ".spec") -}}{{- $rules = append $rules . -}}{{- end -}}
{{- end -}}
{{- range index .field.Markers "kubebuilder:validation:items:XValidation" -}}{{- $rules = append $rules . -}}{{- end -}}
{{- range .rules -}}
{{- if or (eq .FieldPath $path) (hasPrefix (print $path ".") .FieldPath) -}}{{- $rules = append $rules . -}}{{- end -}}
{{- end -}}
{{- range $rules -}}
{{- $m := .Message -}}
{{- if not $m -}}
{{- $m = replace "'\"' + self + '\"" "the value" .MessageExpression -}}
{{- $m = regexReplaceAll "' \\+ self\\.(\\w+) \\+ '" $m "${1}" -}}
{{- $m = regexReplaceAll "^self\\.(\\w+) \\+ '" $m "${1}" | trimSuffix "'" -}}
{{- end -}}
{{- if hasPrefix (print $path ".") .FieldPath -}}{{- $m = print "`" (trimPrefix (print $path ".") .FieldPath) "` " $m -}}{{- end -}}
{{- $parts = append $parts ($m | replace "|" "\\|") -}}
{{- end -}}
{{- join "; " (uniq $parts) -}}
{{- end -}}
