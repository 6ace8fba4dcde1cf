"""Chat in a group of the overlay: chat.py NAME [ADDRESS], such as chat.py bob tcp:127.0.0.1:4803."""

import select
import sys

from faircast_groups import Client

name, address = (sys.argv[1:] + ["tcp:127.0.0.1:4803"])[:2]
typed = open(0, "rb", buffering=0)
with Client(address, name) as client:
    client.join("chat")
    while True:
        while event := client.next(0):
            if event["event"] == "message":
                text = event["payload"].decode(errors="replace")
                print(f"{event['from']['name']}: {text}", flush=True)
            elif event["event"] == "group":
                print("in the chat:", len(event["members"]), flush=True)
            elif event["event"] != "view":
                print(event, file=sys.stderr)
        if typed in select.select([typed, client], [], [])[0]:
            line = typed.readline()
            if not line:
                break
            client.send(["chat"], line.rstrip(b"\n"), service="agreed")
    client.flush()
