"""The list of libraries in a package (SBOM), as an SPDX 2.3 document in JSON.

Scanners compare it with advisories. Each library is named by its Debian package and version, and by Debian's source
package, under which Debian publishes its advisories.
"""

import dataclasses
import datetime
import hashlib
import json
import subprocess

# How a package of ours has a library, in SPDX's words.
STATIC = "STATIC_LINK"    # compiled or linked into a program
BUNDLED = "CONTAINS"      # a file in the package
HOST = "DYNAMIC_LINK"     # found on the host at run time


@dataclasses.dataclass(frozen=True)
class DebianPackage:
    name: str
    version: str
    source: str
    source_version: str
    architecture: str


def debian_package(name):
    """Returns the installed version of a Debian package. Error: subprocess.CalledProcessError for one that is not
    installed."""
    form = "${Version}\\t${source:Package}\\t${source:Version}\\t${Architecture}\\n"
    said = subprocess.run(["dpkg-query", "-W", f"-f={form}", name], check=True, capture_output=True, text=True).stdout
    return DebianPackage(name, *said.splitlines()[0].split("\t"))


def debian_release():
    """Returns the distribution as package URLs name it: debian-12."""
    with open("/etc/os-release", encoding="utf-8") as file:
        values = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    return f"{values['ID']}-{values['VERSION_ID']}".replace('"', "")


def _described(spdx_id, name, version, **more):
    return {"SPDXID": spdx_id, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", **more}


def _library(package, release):
    url = (f"pkg:deb/debian/{package.name}@{package.version}?arch={package.architecture}&distro={release}"
           f"&upstream={package.source}%40{package.source_version}")
    return _described(
        f"SPDXRef-{package.name.replace('+', '-plus')}", package.name, package.version, supplier="Organization: Debian",
        sourceInfo=f"Debian source package {package.source} {package.source_version}",
        externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}])


def sbom(name, version, created_s, libraries, release=None):
    """Returns the document as text, the same for the same arguments.

    name        of our package: "trainyard-cli"
    created_s   seconds since 1970
    libraries   (DebianPackage, STATIC | BUNDLED | HOST) pairs
    """
    release = release or debian_release()
    libraries = sorted(set(libraries), key=lambda pair: (pair[0].name, pair[1]))
    ours = _described("SPDXRef-trainyard", name, version, supplier="NOASSERTION", licenseDeclared="Apache-2.0",
                      primaryPackagePurpose="APPLICATION")
    packages, relationships = {}, [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-trainyard")]
    for package, how in libraries:
        packages[package.name] = _library(package, release)
        relationships.append(("SPDXRef-trainyard", how, packages[package.name]["SPDXID"]))
    content = json.dumps([name, version, created_s, release, sorted(packages), relationships])
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"https://trainyard.invalid/spdx/{name}-{version}-{hashlib.sha256(content.encode()).hexdigest()}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(created_s, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: scripts/package"],
        },
        "packages": [ours, *packages.values()],
        "relationships": [{"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
                          for one, how, other in relationships],
    }
    return json.dumps(document, indent=1) + "\n"
