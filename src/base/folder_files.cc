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

struct Listing {
  const std::filesystem::path& root;
  const std::string& what;
  std::vector<std::string> paths;

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

  Status add(const std::string& path, int64_t depth) {
    struct stat st {};
    if (::stat((root / path).c_str(), &st) != 0) {
      return storage_error(path, "stat the file", errno);
    }
    if (S_ISDIR(st.st_mode)) return add_folder(path, depth + 1);
    if (!S_ISREG(st.st_mode)) return refusal(path, "neither a file nor a folder");
    if (path.size() > kTreePathBytesMax) return refusal(path, "its path is too long");
    if (std::ssize(paths) == kTreeFilesMax) {
      return refusal(path, "more than " + std::to_string(kTreeFilesMax) + " files");
    }
    paths.push_back(path);
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
    while (const dirent* entry = ::readdir(open.get())) {
      if (is_hidden(entry->d_name)) continue;
      const std::string path = folder.empty() ? entry->d_name : folder + "/" + entry->d_name;
      if (Status s = add(path, depth); !s.ok()) return s;
    }
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

bool is_hidden(std::string_view name) { return name.starts_with('.') || name == "__MACOSX"; }

bool is_listed_path(std::string_view path) {
  if (path.empty() || path.size() > kTreePathBytesMax || path.find('\0') != path.npos) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || is_hidden(part)) return false;  // "." and ".." are hidden too
    begin = end + 1;
  }
  return true;
}

std::string shown_name(const std::filesystem::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Result<std::vector<std::string>> list_folder_files(const std::filesystem::path& root,
                                                   const std::string& what) {
  Listing listing{root, what, {}};
  if (Status s = listing.add_folder("", 0); !s.ok()) return std::move(s).error();
  std::sort(listing.paths.begin(), listing.paths.end());
  return std::move(listing.paths);
}

}  // namespace trainyard
