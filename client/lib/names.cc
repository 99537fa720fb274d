#include "client/lib/names.h"

#include <cstdio>
#include <random>

#include "src/base/text.h"

namespace trainyard::client {

Result<std::string> full_name(std::string_view collection, std::string_view text,
                              std::string_view parent) {
  const std::string noun(collection.substr(0, collection.size() - 1));
  const auto malformed = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, "NAME_MALFORMED",
                      noun + " name " + quoted_value(text) + " " + why);
  };
  if (text.empty()) return malformed("is empty");
  if (text.find('/') == text.npos) {
    return std::string(parent) + "/" + std::string(collection) + "/" + std::string(text);
  }
  // projects/{project}/{collection}/{id}
  const size_t first = text.find('/');
  const size_t second = text.find('/', first + 1);
  const size_t third = second == text.npos ? text.npos : text.find('/', second + 1);
  const bool shaped = third != text.npos && text.substr(0, first) == "projects" &&
                      third + 1 < text.size() && text.find('/', third + 1) == text.npos;
  if (!shaped)
    return malformed("is not of the form NAME or projects/PROJECT/" + std::string(collection) +
                     "/NAME");
  const std::string_view found = text.substr(second + 1, third - second - 1);
  if (found == "jobs" && collection == "models") {  // a trained model has its job's name
    return std::string(text.substr(0, second + 1)) + "models" + std::string(text.substr(third));
  }
  if (found != collection)
    return malformed("names one of the " + quoted_value(found) + ", not a " + noun);
  return std::string(text);
}

std::string_view short_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == name.npos ? name : name.substr(slash + 1);
}

std::string_view parent_of(std::string_view name) {
  constexpr std::string_view kProjects = "projects/";
  const size_t end = name.starts_with(kProjects) ? name.find('/', kProjects.size()) : name.npos;
  return end == name.npos ? std::string_view() : name.substr(0, end);
}

std::string make_uuid() {
  std::random_device device;
  const auto word = [&] { return static_cast<unsigned>(device()); };
  const unsigned a = word(), b = word(), c = word(), d = word();
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xfff,
                (c >> 16 & 0x3fff) | 0x8000, c & 0xffff, d);
  return text;
}

}  // namespace trainyard::client
