// client/cli/options.h: the options of one command. CLI11 parses them; this facade restricts its
// headers to one translation unit, and stores the rows that help and completion print.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.h"

namespace trainyard::cli {

/// Returns an error in the command line: INVALID_ARGUMENT/USAGE.
inline Error usage_error(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "USAGE", std::move(message));
}

struct OptionRow {
  std::vector<std::string> names;  // "-o", "--output"; one name without dashes for a positional
  std::string value;               // "FORMAT"; empty for a switch
  std::string help;
  std::vector<std::string> choices;  // for completion and help
  bool positional = false;
  bool required = false;
  bool several = false;  // a positional that takes one or more arguments
  std::string group;     // the heading in help; empty: "Options"
};

class OptionSet {
 public:
  OptionSet();
  ~OptionSet();
  OptionSet(OptionSet&&) noexcept;

  /// Sets the help's heading for the options that follow.
  void group(std::string heading);
  /// Adds a switch. `names` is a comma-separated list, "-w,--watch". All targets must outlive
  /// parse().
  void flag(const std::string& names, bool& target, const std::string& help);
  void text(const std::string& names, const std::string& value, std::string& target,
            const std::string& help, std::vector<std::string> choices = {});
  void text(const std::string& names, const std::string& value, std::optional<std::string>& target,
            const std::string& help, std::vector<std::string> choices = {});
  void texts(const std::string& names, const std::string& value, std::vector<std::string>& target,
             const std::string& help, std::vector<std::string> choices = {});
  /// Adds an option that takes all arguments up to the next option, as a shell pattern expands to.
  void paths(const std::string& names, const std::string& value, std::vector<std::string>& target,
             const std::string& help);
  void number(const std::string& names, const std::string& value, double& target,
              const std::string& help);
  void integer(const std::string& names, const std::string& value, int64_t& target,
               const std::string& help);
  /// Adds a positional argument; they follow the order of the command line. An optional one must be
  /// the last.
  void positional(const std::string& name, std::string& target, const std::string& help,
                  bool required = true);
  void positionals(const std::string& name, std::vector<std::string>& target,
                   const std::string& help);

  /// Parses the arguments into the targets. Errors are USAGE, with the most similar option's name.
  Status parse(std::vector<std::string> arguments);
  const std::vector<OptionRow>& rows() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::cli
