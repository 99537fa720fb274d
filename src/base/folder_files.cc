#include "src/base/folder_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/handle.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

// Names in lower case; case is ignored. Names that begin with a dot are ignored anyway: .DS_Store,
// ._NAME, .git, .ipynb_checkpoints, .Trashes, .dropbox.cache.
constexpr std::array<std::string_view, 15> kSystemNames = {
    "__macosx",     "icon\r",  // macOS
    "thumbs.db",    "thumbs.db:encryptable",
    "ehthumbs.db",  // Windows
    "desktop.ini",  "system volume information",
    "$recycle.bin", "@eadir",
    "#recycle",     "#snapshot",  // network storages
    "@recycle",     "@recently-snapshot",
    "@__thumb",     "lost+found"};
constexpr std::array<std::string_view, 2> kSystemStarts = {".", "~$"};        // ~$: Office
constexpr std::array<std::string_view, 2> kSystemEndings = {".swp", ".swo"};  // Vim

struct FolderWalk {
  const std::filesystem::path& root;
  const std::string& what;
  FolderListing found;

  std::string place(const std::string& path) const {
    return path.empty() ? what : what + ": " + quoted_value(path);
  }
  Error refusal(const std::string& path, const std::string& description) const {
    return field_error("DATASET_INVALID", place(path), description);
  }
  Error storage_error(const std::string& path, const char* doing, int error) const {
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                      place(path) + ": cannot " + doing + ": " + std::strerror(error));
  }

  /// Refuses a link to a place that is not below the root: it may name a file that was never meant
  /// to leave this machine.
  Status check_link(const std::string& path) const {
    std::error_code failed;
    const std::filesystem::path target = std::filesystem::canonical(root / path, failed);
    if (failed) return storage_error(path, "follow the link", failed.value());
    const std::filesystem::path folder = std::filesystem::canonical(root, failed);
    if (failed) return storage_error("", "open the folder", failed.value());
    const std::filesystem::path within = target.lexically_relative(folder);
    if (!within.empty() && *within.begin() != "..") return {};
    return refusal(path, "a link out of the folder, to " + quoted_value(target.string()) +
                             "; put the file itself there, or remove the link");
  }

  Status add(const std::string& path, int64_t depth) {
    struct stat st {};
    bool known = ::lstat((root / path).c_str(), &st) == 0;
    if (known && S_ISLNK(st.st_mode)) {
      if (Status s = check_link(path); !s.ok()) return s;
      known = ::stat((root / path).c_str(), &st) == 0;
    }
    if (!known) return storage_error(path, "stat the file", errno);
    if (S_ISDIR(st.st_mode)) return add_folder(path, depth + 1);
    if (!S_ISREG(st.st_mode)) return refusal(path, "neither a file nor a folder");
    if (path.size() > kTreePathBytesMax) return refusal(path, "its path is too long");
    if (std::ssize(found.files) == kTreeFilesMax) {
      return refusal(path, "more than " + std::to_string(kTreeFilesMax) + " files");
    }
    found.files.push_back(path);
    return {};
  }

  Status add_folder(const std::string& folder, int64_t depth) {
    if (depth > kTreeDepthMax) {
      return refusal(folder, "more than " + std::to_string(kTreeDepthMax) +
                                 " folders deep; does a link form a loop?");
    }
    const Handle<DIR, closedir> open(::opendir((root / folder).c_str()));
    const int open_error = errno;
    if (!open) return storage_error(folder, "open the folder", open_error);
    bool empty = true;
    while (const dirent* entry = ::readdir(open.get())) {
      if (is_ignored_name(entry->d_name)) continue;
      empty = false;
      const std::string path = folder.empty() ? entry->d_name : folder + "/" + entry->d_name;
      if (Status s = add(path, depth); !s.ok()) return s;
    }
    if (empty && !folder.empty()) found.empty_folders.push_back(folder);
    return {};
  }
};

}  // namespace

bool has_ending(std::string_view path, std::span<const std::string_view> endings) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(path.substr(dot));
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

bool is_image_path(std::string_view path) {
  static constexpr std::array<std::string_view, 3> kEndings = {".jpg", ".jpeg", ".png"};
  return has_ending(path, kEndings);
}

bool is_ignored_name(std::string_view name) {
  const std::string text = lower(name);
  const auto begins = [&](std::string_view start) { return text.starts_with(start); };
  const auto ends = [&](std::string_view ending) { return text.ends_with(ending); };
  return std::ranges::any_of(kSystemStarts, begins) || std::ranges::any_of(kSystemEndings, ends) ||
         std::ranges::find(kSystemNames, text) != kSystemNames.end();
}

bool is_listed_path(std::string_view path) {
  if (path.empty() || path.size() > kTreePathBytesMax || path.find('\0') != path.npos) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || is_ignored_name(part)) return false;  // so are "." and ".."
    begin = end + 1;
  }
  return true;
}

std::string shown_name(const std::filesystem::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Result<FolderListing> list_folder(const std::filesystem::path& root, const std::string& what) {
  FolderWalk walk{root, what, {}};
  if (Status s = walk.add_folder("", 0); !s.ok()) return std::move(s).error();
  std::ranges::sort(walk.found.files);
  std::ranges::sort(walk.found.empty_folders);
  return std::move(walk.found);
}

Result<std::vector<std::string>> list_folder_files(const std::filesystem::path& root,
                                                   const std::string& what) {
  ASSIGN_OR_RETURN(FolderListing listing, list_folder(root, what));
  return std::move(listing.files);
}

}  // namespace trainyard
