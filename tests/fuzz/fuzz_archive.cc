// Fuzzes archives: tar, plain or compressed, and zip. Forbidden entries must never be returned.
#include "src/data/files/archive_tree.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const MemoryFile file(data, size);
  const auto tree = open_archive_tree(file.path(), "data");
  if (!tree.ok()) return 0;
  for (int round = 0; round < 2; ++round) {
    while (true) {
      const auto more = (*tree)->next();
      if (!more.ok()) return 0;
      if (!*more) break;
      const std::string& path = (*tree)->path();
      TRAINYARD_CHECK(!path.starts_with('/') && ("/" + path + "/").find("/../") == path.npos,
                      "a path within the archive: " + path);
      if (!read_tree_file(**tree, 1 << 20, "data").ok()) return 0;
    }
    if (!(*tree)->rewind().ok()) return 0;
  }
  return 0;
}
