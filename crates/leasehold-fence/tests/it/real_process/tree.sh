# A tree that does not want to die: a leader and a child that ignore TERM, a grandchild, a
# great-grandchild in a session of its own, and one that was detached twice. Each notes itself, and
# shows again and again that it executes.
#
# Arguments: the folder to write to, the pause between two signs of life, a role.
folder=$1 pace=$2 role=$3
trap '' TERM

note() {
    read -r stat </proc/self/stat
    echo "$stat" >"$folder/$1.pid"
}

live() {
    note "$1"
    while :; do
        printf . >>"$folder/$1.beat"
        sleep "$pace"
    done
}

case $role in
leader)
    sh "$0" "$folder" "$pace" child &
    (setsid sh "$0" "$folder" "$pace" daemon &)
    live leader
    ;;
leaver)
    sh "$0" "$folder" "$pace" child &
    (setsid sh "$0" "$folder" "$pace" daemon &)
    until [ -s "$folder/child.pid" ] && [ -s "$folder/grandchild.pid" ] &&
        [ -s "$folder/session.pid" ] && [ -s "$folder/daemon.pid" ]; do
        sleep 0.02
    done
    note leader
    until [ -e "$folder/leave" ]; do sleep 0.02; done
    ;;
child)
    sh "$0" "$folder" "$pace" grandchild &
    live child
    ;;
grandchild)
    setsid sh "$0" "$folder" "$pace" session &
    live grandchild
    ;;
*)
    live "$role"
    ;;
esac
