"""What users of the `cloudsigma` package do, against whatever listens at the address given."""

import sys

from cloudsigma import errors, resource

of = dict(zip(("api_endpoint", "username", "password"), sys.argv[1:]))
ips, servers, tags = resource.IP(**of), resource.Server(**of), resource.Tags(**of)

# Lists: all of them, although there are more than a page has.
assert len(ips.list()) == len(ips.list_detail()) == 25, ips.list()
address = ips.list_detail()[0]
assert address["subscription"] and address["server"] is None and address["owner"]["uuid"], address
paid = resource.Subscriptions(**of).list({"resource": "ip", "status": "active"})
assert address["uuid"] in [subscription["subscribed_object"] for subscription in paid], paid
assert resource.Profile(**of).get()["email"] == of["username"]
assert resource.Locations(**of).list()[0]["api_endpoint"] == of["api_endpoint"]

# One object, changed and read again.
changed = ips.update(address["uuid"], {"meta": {"note": "mine"}})
assert changed["meta"] == ips.get(address["uuid"])["meta"] == {"note": "mine"}, changed

# Tags.
tag = tags.create({"name": "web", "resources": [{"uuid": address["uuid"]}]})
assert [found["uuid"] for found in tags.ips(tag["uuid"])] == [address["uuid"]]
tags.update(tag["uuid"], {"name": "web", "resources": []})
assert tags.ips(tag["uuid"]) == []
tags.delete(tag["uuid"])
assert tags.list() == []

# A server: renamed while it runs, stopped, and only then given another NIC.
server = servers.list_detail()[0]
assert servers.get(server["uuid"])["status"] == "running"
server["name"] = "renamed"
server["nics"] = server["nics"] + [{"ip_v4_conf": {"conf": "static", "ip": address["uuid"]}, "model": "virtio"}]
assert len(servers.update(server["uuid"], server)["nics"]) == 1
assert servers.get(server["uuid"])["name"] == "renamed"
servers.stop(server["uuid"])
while servers.get(server["uuid"])["status"] != "stopped":
    pass
assert len(servers.update(server["uuid"], server)["nics"]) == 2
assert ips.get(address["uuid"])["server"]["uuid"] == server["uuid"]

# What is refused.
try:
    servers.get("00000000-0000-4000-8000-000000000000")
    sys.exit("a server that is not there")
except errors.ClientError as error:
    assert "notexist" in str(error), error
try:
    resource.IP(**dict(of, password="wrong")).list()
    sys.exit("a wrong password")
except errors.AuthError:
    pass
print("all is as it should be")
