#include "client/cli/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>

#include "src/base/text.h"

namespace trainyard::cli {

struct OptionSet::Impl {
  CLI::App app;
  std::vector<OptionRow> rows;
  std::string group;

  OptionRow& add_row(const std::string& names, const std::string& value, const std::string& help) {
    OptionRow row;
    std::istringstream in(names);
    for (std::string name; std::getline(in, name, ',');) row.names.push_back(name);
    row.value = value;
    row.help = help;
    row.group = group;
    rows.push_back(std::move(row));
    return rows.back();
  }
};

namespace {

/// Returns the option with the most similar name. Dashes are ignored, since all options have them.
std::optional<std::string> nearest_option(const std::string& name,
                                          const std::vector<std::string>& known) {
  const auto bare = [](const std::string& option) {
    return option.substr(std::min(option.size(), option.find_first_not_of('-')));
  };
  std::vector<std::string> names;
  for (const std::string& option : known) names.push_back(bare(option));
  const std::optional<std::string> near = nearest_name(bare(name), names);
  if (!near) return std::nullopt;
  return known[static_cast<size_t>(std::ranges::find(names, *near) - names.begin())];
}

/// Returns a validator that refuses text that does not parse as T; `what` describes the expected
/// values.
template <typename T>
auto expect(const std::string& what) {
  return [what](const std::string& value) {
    T parsed{};
    const char* end = value.data() + value.size();
    const auto [read, error] = std::from_chars(value.data(), end, parsed);
    const bool good = error == std::errc() && read == end;
    return good ? std::string() : quoted_value(value) + ", expected " + what;
  };
}

}  // namespace

OptionSet::OptionSet() : impl_(std::make_unique<Impl>()) {
  impl_->app.set_help_flag();  // disables CLI11's own help; ours shows examples first
}
OptionSet::~OptionSet() = default;
OptionSet::OptionSet(OptionSet&&) noexcept = default;

const std::vector<OptionRow>& OptionSet::rows() const { return impl_->rows; }

void OptionSet::group(std::string heading) { impl_->group = std::move(heading); }

void OptionSet::flag(const std::string& names, bool& target, const std::string& help) {
  impl_->app.add_flag(names, target, help);
  impl_->add_row(names, "", help);
}

void OptionSet::text(const std::string& names, const std::string& value, std::string& target,
                     const std::string& help, std::vector<std::string> choices) {
  impl_->app.add_option(names, target, help);
  impl_->add_row(names, value, help).choices = std::move(choices);
}

void OptionSet::text(const std::string& names, const std::string& value,
                     std::optional<std::string>& target, const std::string& help,
                     std::vector<std::string> choices) {
  impl_->app.add_option(names, target, help);
  impl_->add_row(names, value, help).choices = std::move(choices);
}

void OptionSet::texts(const std::string& names, const std::string& value,
                      std::vector<std::string>& target, const std::string& help,
                      std::vector<std::string> choices) {
  // one value per occurrence of the option
  impl_->app.add_option(names, target, help)->allow_extra_args(false);
  impl_->add_row(names, value, help).choices = std::move(choices);
}

void OptionSet::paths(const std::string& names, const std::string& value,
                      std::vector<std::string>& target, const std::string& help) {
  impl_->app.add_option(names, target, help);
  impl_->add_row(names, value, help);
}

void OptionSet::number(const std::string& names, const std::string& value, double& target,
                       const std::string& help) {
  impl_->app.add_option(names, target, help)->check(expect<double>("a number"));
  impl_->add_row(names, value, help);
}

void OptionSet::integer(const std::string& names, const std::string& value, int64_t& target,
                        const std::string& help) {
  impl_->app.add_option(names, target, help)->check(expect<int64_t>("a whole number"));
  impl_->add_row(names, value, help);
}

void OptionSet::positional(const std::string& name, std::string& target, const std::string& help,
                           bool required) {
  impl_->app.add_option(name, target, help)->required(required);
  OptionRow& row = impl_->add_row(name, "", help);
  row.positional = true;
  row.required = required;
}

void OptionSet::positionals(const std::string& name, std::vector<std::string>& target,
                            const std::string& help) {
  impl_->app.add_option(name, target, help)->required();
  OptionRow& row = impl_->add_row(name, "", help);
  row.several = true;
  row.positional = true;
  row.required = true;
}

Status OptionSet::parse(std::vector<std::string> arguments) {
  const auto refuse = [](std::string message) { return usage_error(std::move(message)); };
  std::vector<std::string> known;
  for (const OptionRow& row : impl_->rows) {
    if (!row.positional) known.insert(known.end(), row.names.begin(), row.names.end());
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the arguments in reverse order
  try {
    impl_->app.parse(arguments);
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extra = impl_->app.remaining();
    const std::string first = extra.empty() ? "" : extra.front();
    if (!first.starts_with('-')) return refuse("unexpected argument " + quoted_value(first));
    const std::string name = first.substr(0, first.find('='));
    std::optional<std::string> near = nearest_option(name, known);
    if (!near && std::ranges::count(known, "--set") > 0) {  // for example 'submit SPEC --epochs 5'
      return refuse("unknown option " + quoted_value(name) +
                    "; --set PATH=VALUE changes a field of the file, for example "
                    "--set recipe.epochs=5 or --set resources.gpus=2");
    }
    return refuse("unknown option " + quoted_value(name) +
                  (near ? ", did you mean '" + *near + "'?" : ""));
  } catch (const CLI::RequiredError& e) {
    std::string what = e.what();  // for example "SPEC is required"
    return refuse(what);
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  return {};
}

}  // namespace trainyard::cli
