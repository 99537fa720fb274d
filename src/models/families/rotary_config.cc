#include "src/models/families/rotary_config.h"

#include <cmath>

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSupported = "default, linear, llama3 or yarn";

/// YaRN's factor of cosines and sines for scaled positions (Peng et al. 2023, section 3.4).
double yarn_magnitude(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

/// The length of texts before the model was adapted to longer ones.
int64_t original_positions(ConfigObject& config, ConfigObject& rope, int64_t positions_max) {
  const int64_t inner =
      rope.integer("original_max_position_embeddings", 1, kConfigPositionsMax, positions_max);
  return config.integer("original_max_position_embeddings", 1, kConfigPositionsMax, inner);
}

void read_llama3(ConfigObject& config, ConfigObject& rope, int64_t positions_max,
                 Attributes& parameters) {
  const double low = rope.positive("low_freq_factor"), high = rope.positive("high_freq_factor");
  if (high <= low) rope.refuse("high_freq_factor", "is not above low_freq_factor, as it must be");
  parameters.set("rope_factor", rope.positive("factor"));
  parameters.set("rope_low_freq_factor", low);
  parameters.set("rope_high_freq_factor", high);
  parameters.set("rope_original_positions", original_positions(config, rope, positions_max));
}

void read_yarn(ConfigObject& config, ConfigObject& rope, int64_t positions_max,
               Attributes& parameters) {
  const int64_t original = original_positions(config, rope, positions_max);
  const double factor =
      rope.positive("factor", static_cast<double>(positions_max) / static_cast<double>(original));
  const double mscale = rope.real("mscale", 0), all_dim = rope.real("mscale_all_dim", 0);
  const double magnitude = mscale != 0 && all_dim != 0
                               ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim)
                               : yarn_magnitude(factor, 1);
  parameters.set("rope_factor", factor);
  parameters.set("rope_original_positions", original);
  parameters.set("rope_attention_factor", rope.positive("attention_factor", magnitude));
  parameters.set("rope_beta_fast", rope.positive("beta_fast", 32));
  parameters.set("rope_beta_slow", rope.positive("beta_slow", 1));
  parameters.set("rope_truncate", int64_t{rope.flag("truncate", true) ? 1 : 0});
}

void read_scaling(ConfigObject& config, ConfigObject& rope, int64_t positions_max,
                  Attributes& parameters) {
  const std::string old_type = rope.text("type", "default");
  const std::string type = rope.text("rope_type", old_type);
  if (type == "linear") {
    parameters.set("rope_factor", rope.positive("factor"));
  } else if (type == "llama3") {
    read_llama3(config, rope, positions_max, parameters);
  } else if (type == "yarn") {
    read_yarn(config, rope, positions_max, parameters);
  } else if (type != "default") {
    rope.refuse("rope_type",
                "is " + shown_value(Json(type)) + ", expected " + std::string(kSupported));
    rope.ignore("*");  // the settings of another type are no further problems
    return;
  }
  if (type != "default") parameters.set("rope_scaling", type);
}

void check_partial(ConfigObject& object) {
  if (object.positive("partial_rotary_factor", 1) != 1) {
    object.refuse("partial_rotary_factor",
                  "rotates a part of each head, which this family's networks do not do");
  }
}

}  // namespace

void read_rotary(ConfigObject& config, double theta_default, int64_t positions_max,
                 Violations& problems, Attributes& parameters) {
  const double outer_theta = config.positive("rope_theta", theta_default);
  check_partial(config);
  // transformers prefers rope_scaling if a file has both.
  const Json* const scaling = config.find("rope_scaling");
  const Json* const newer = config.find("rope_parameters");
  const bool is_old = scaling != nullptr && !scaling->empty();
  const std::string_view key = is_old ? "rope_scaling" : "rope_parameters";
  const Json* const object = is_old ? scaling : newer;
  double theta = outer_theta;
  if (object != nullptr && !object->is_object()) {
    config.refuse(key, "is " + shown_value(*object) + ", expected an object with rope_type");
  } else if (object != nullptr) {
    ConfigObject rope(*object, "config.json: " + std::string(key) + ".", problems);
    theta = rope.positive("rope_theta", outer_theta);
    if (theta != outer_theta && config.has("rope_theta")) {
      config.refuse("rope_theta", "differs from " + std::string(key) + ".rope_theta");
    }
    check_partial(rope);
    read_scaling(config, rope, positions_max, parameters);
    rope.refuse_unread("this setting of rotary positions is not known");
  }
  if (is_old && newer != nullptr && *newer != *scaling && !newer->empty()) {
    config.refuse("rope_parameters", "differs from rope_scaling; expected one of them");
  }
  parameters.set("rope_theta", theta);
}

}  // namespace trainyard
