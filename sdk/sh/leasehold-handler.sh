# The child side of Leasehold for shell handlers, to be sourced: `request` prints the request; one of
# `succeed JSON`, `fail CLASS MESSAGE` and `park REASON SECONDS` ends the run; `progress PERCENT NOTE`
# says how far it is; `json_text TEXT` prints a JSON string. Needs a POSIX shell and awk.

# Descriptor 8 keeps standard output for the result; everything else goes to standard error. The
# request is read now, so that it can be asked for more than once.
exec 8>&1 1>&2
WORKER_REQUEST=${WORKER_REQUEST-$(cat)}

request() { printf '%s\n' "$WORKER_REQUEST"; }
succeed() { leasehold_end 0 "$1"; }
fail() { leasehold_end 1 "{\"error\": $(json_text "$1"), \"message\": $(json_text "${2-}")}"; }
park() {
    leasehold_is_whole "${2-}" && [ -n "$1" ] || fail UsageError "usage: park REASON SECONDS, got '$1' and '${2-}'"
    leasehold_end 75 "{\"reason\": $(json_text "$1"), \"retry_after\": $2}"
}
progress() {
    leasehold_is_whole "$1" || { echo "usage: progress PERCENT [NOTE], got '$1'" >&2; return 0; }
    printf 'leasehold:progress {"percent": %s, "note": %s}\n' "$1" "$(json_text "${2-}")" >&2
}

leasehold_end() { printf '%s' "$2" >&8; exit "$1"; }
leasehold_is_whole() { case $1 in '' | *[!0-9]* | 0?*) return 1 ;; esac; }

# In the C locale a character is a byte; bytes that are not UTF-8, which no JSON may hold, become `?`.
json_text() {
    printf '%s\n' "$1" | LC_ALL=C awk '
        BEGIN {
            t = "[\200-\277]"
            utf8 = "^([\001-\177]|[\302-\337]" t "|\340[\240-\277]" t "|[\341-\354\356\357]" t t \
                "|\355[\200-\237]" t "|\360[\220-\277]" t t "|[\361-\363]" t t t "|\364[\200-\217]" t t ")*$"
            printf "\""
        }
        $0 !~ utf8 { gsub(/[\200-\377]/, "?") }
        {
            gsub(/["\\]/, "\\\\&")
            for (i = 1; i < 32; i++) gsub(sprintf("%c", i), sprintf("\\u%04x", i))
            printf "%s%s", (NR > 1 ? "\\n" : ""), $0
        }
        END { printf "\"" }'
}
