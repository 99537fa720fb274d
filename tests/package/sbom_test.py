#!/usr/bin/env python3
"""Tests the list of libraries that each package carries (packaging/sbom.py)."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging"))
from sbom import BUNDLED, STATIC, DebianPackage, debian_package, sbom  # noqa: E402

ZLIB = DebianPackage("zlib1g-dev", "1:1.2.13.dfsg-1", "zlib", "1:1.2.13.dfsg-1", "amd64")
CPP = DebianPackage("libstdc++-12-dev", "12.2.0-14", "gcc-12", "12.2.0-14", "amd64")


class Sbom(unittest.TestCase):
    def test_each_library_has_its_version_its_source_and_its_relation(self):
        document = json.loads(sbom("trainyard-cli", "0.1.0", 1_700_000_000, [(ZLIB, STATIC), (CPP, BUNDLED)], "debian-12"))
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        by_name = {package["name"]: package for package in document["packages"]}
        self.assertEqual(set(by_name), {"trainyard-cli", "zlib1g-dev", "libstdc++-12-dev"})
        self.assertEqual(by_name["zlib1g-dev"]["sourceInfo"], "Debian source package zlib 1:1.2.13.dfsg-1")
        self.assertEqual(by_name["libstdc++-12-dev"]["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libstdc++-12-dev@12.2.0-14?arch=amd64&distro=debian-12&upstream=gcc-12%4012.2.0-14")
        related = {(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in document["relationships"]}
        self.assertEqual(related, {("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-trainyard"),
                                   ("SPDXRef-trainyard", "STATIC_LINK", "SPDXRef-zlib1g-dev"),
                                   ("SPDXRef-trainyard", "CONTAINS", "SPDXRef-libstdc-plus-plus-12-dev")})
        for package in document["packages"]:
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")

    def test_the_same_libraries_give_the_same_document_in_any_order(self):
        one = sbom("trainyard", "0.1.0", 1, [(ZLIB, STATIC), (CPP, STATIC)], "debian-12")
        self.assertEqual(one, sbom("trainyard", "0.1.0", 1, [(CPP, STATIC), (ZLIB, STATIC), (ZLIB, STATIC)], "debian-12"))
        self.assertNotEqual(json.loads(one)["documentNamespace"],
                            json.loads(sbom("trainyard", "0.1.0", 1, [(ZLIB, STATIC)], "debian-12"))["documentNamespace"])

    def test_an_installed_package_is_found_with_its_source(self):
        found = debian_package("libc6")
        self.assertEqual(found.source, "glibc")
        self.assertTrue(found.version)


if __name__ == "__main__":
    unittest.main()
