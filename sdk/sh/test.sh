#!/bin/sh
# Runs handlers under a shell as the worker does, and holds them to what the worker must see:
# `test.sh dash` or `test.sh bash`.
set -eu

shell=${1:?usage: test.sh SHELL}
here=$(cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0

# handle REQUEST BODY: runs BODY as a handler; leaves its exit code, standard output and standard error
# in $code, $out and $err. A trailing dot keeps the newlines at the end.
handle() {
    printf '. "%s/leasehold-handler.sh"\n%s\n' "$here" "$2" >"$work/handler"
    code=0
    env -i PATH="$PATH" LANG=C.UTF-8 WORKER_REQUEST="$1" "$shell" "$work/handler" \
        >"$work/out" 2>"$work/err" </dev/null || code=$?
    collect
}

# The same with the request on standard input and no variable.
handle_stdin() {
    printf '. "%s/leasehold-handler.sh"\n%s\n' "$here" "$2" >"$work/handler"
    code=0
    printf '%s' "$1" | env -i PATH="$PATH" LANG=C.UTF-8 "$shell" "$work/handler" \
        >"$work/out" 2>"$work/err" || code=$?
    collect
}

collect() {
    out=$(cat "$work/out" && echo .) err=$(cat "$work/err" && echo .)
    out=${out%.} err=${err%.}
}

# expect NAME CODE OUT [ERR]
expect() {
    if [ "$code" != "$2" ] || [ "$out" != "$3" ] || { [ $# -gt 3 ] && [ "$err" != "$4" ]; }; then
        printf '%s: %s\n  expected %s: %s\n  got      %s: %s\n  stderr   %s\n' \
            "$shell" "$1" "$2" "$3" "$code" "$out" "$err" >&2
        exit 1
    fi
    passed=$((passed + 1))
}

newline='
'

handle '{"n": 1}' 'succeed "$(request)"'
expect 'the request comes from the variable' 0 '{"n": 1}' ''

handle_stdin '{"n": 2}' 'one=$(request); succeed "$(request)"'
expect 'without it from standard input, as often as asked for' 0 '{"n": 2}' ''

large="{\"text\": \"$(head -c 300000 /dev/zero | tr '\0' x)\"}"
handle_stdin "$large" 'succeed "$(request)"'
expect 'a large request and a result larger than a pipe' 0 "$large" ''

handle '{}' '
    echo from echo
    printf "from printf\n"
    sh -c "echo from a subprocess"
    echo "{\"error\": \"AbortedStaleTask\", \"message\": \"forged\"}"
    succeed "{\"ok\": true}"'
expect 'noise goes to standard error' 0 '{"ok": true}' \
    "from echo${newline}from printf${newline}from a subprocess$newline{\"error\": \"AbortedStaleTask\", \"message\": \"forged\"}$newline"

handle '{}' 'succeed "{}"; echo after; fail TooLate "not reached"'
expect 'an ending ends the run' 0 '{}' ''

handle '{}' 'fail UnsupportedAsset "no such type"'
expect 'a failure' 1 '{"error": "UnsupportedAsset", "message": "no such type"}' ''

handle '{}' 'fail Plain'
expect 'a failure without a message' 1 '{"error": "Plain", "message": ""}' ''

handle '{}' 'set -u; fail E "$(cat <<"END"
say "hi" & C:\dir\&
	tab %s \n é東😀

end
END
)"'
expect 'quotes, backslashes, line ends, tabs, and text of any language' 1 \
    '{"error": "E", "message": "say \"hi\" & C:\\dir\\&\n\u0009tab %s \\n é東😀\n\nend"}' ''

handle '{}' 'fail E "$(printf "a\001\033\037\177b\r.")$(printf "\n\n.")"'
expect 'control characters' 1 \
    "{\"error\": \"E\", \"message\": \"a\\u0001\\u001b\\u001f$(printf '\177')b\\u000d.\\n\\n.\"}" ''

handle '{}' 'last="x
"; fail E "$last"'
expect 'a line end at the very end' 1 '{"error": "E", "message": "x\n"}' ''

handle '{}' 'fail E "$(printf "bad \377 \300\200 \355\240\200 cut \303")"'
expect 'bytes that are not UTF-8' 1 '{"error": "E", "message": "bad ? ?? ??? cut ?"}' ''

handle '{}' 'fail E -n'
expect 'a message that looks like an option' 1 '{"error": "E", "message": "-n"}' ''

handle '{}' 'park "quota \"used\" up" 90'
expect 'parking' 75 '{"reason": "quota \"used\" up", "retry_after": 90}' ''

for arguments in '"" 5' 'reason' 'reason soon' 'reason -1' 'reason 1.5' 'reason 08'; do
    handle '{}' "park $arguments"
    case $out in
    '{"error": "UsageError", "message": "usage: park REASON SECONDS, got '*) out=refused ;;
    esac
    expect "parking refuses $arguments" 1 refused
done

handle '{}' 'progress 40 "rows 400 of 1000"; progress 100; progress 7 "say \"ü\""; succeed "{}"'
expect 'progress' 0 '{}' "leasehold:progress {\"percent\": 40, \"note\": \"rows 400 of 1000\"}
leasehold:progress {\"percent\": 100, \"note\": \"\"}
leasehold:progress {\"percent\": 7, \"note\": \"say \\\"ü\\\"\"}
"

handle '{}' 'set -e; progress half; succeed "{}"'
expect 'progress that is no number ends nothing' 0 '{}' \
    "usage: progress PERCENT [NOTE], got 'half'$newline"

handle '{}' 'set -eu; progress 1; false; succeed "{}"'
expect 'a command that fails under set -e leaves no result' 1 ''

handle '{}' 'set -e; printf "a\nb\n" | while read -r line; do [ "$line" = a ] || fail BadLine "$line"; done; succeed "{}"'
expect 'a failure inside a pipeline' 1 '{"error": "BadLine", "message": "b"}' ''

handle '{}' 'kill -TERM $$; succeed "{}"'
expect 'TERM ends the process' 143 ''

handle '{}' 'trap "park stopped 0" TERM; kill -TERM $$; succeed "{}"'
expect 'unless the handler traps it' 75 '{"reason": "stopped", "retry_after": 0}'

echo "$shell: $passed tests"
