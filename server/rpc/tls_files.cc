#include "server/rpc/tls_files.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <ctime>

#include "src/base/files.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

constexpr int64_t kPemBytesMax = 1 << 20;
constexpr unsigned kReadAgainSeconds = 1;

using PrivateKey = Handle<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Handle<X509, X509_free>;
using Memory = Handle<BIO, BIO_free>;

/// OpenSSL's default asks the terminal for the password of an encrypted key.
int no_password(char*, int, int, void*) { return -1; }

Memory reader(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Error invalid(const char* setting, const std::filesystem::path& file, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "TLS_FILE_INVALID",
                    std::string(setting) + ": " + file.string() + " " + what);
}

Result<std::string> read_pem(const char* setting, const std::filesystem::path& file) {
  Result<std::string> text = read_file(file, kPemBytesMax);
  if (text.ok()) return text;
  Error error = text.error();
  error.message = std::string(setting) + ": " + error.message;
  return error;
}

std::string subject_of(const X509* certificate) {
  const Memory out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0, XN_FLAG_ONELINE);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string day_of(const ASN1_TIME* time) {
  std::tm fields{};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return "an unknown day";
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%d", &fields) > 0 ? text : "";
}

std::optional<std::string> validity_warning(const X509* certificate) {
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(until) < 0) {
    return "the certificate of tls_certificate expired on " + day_of(until) +
           ": clients refuse it until it is replaced";
  }
  if (X509_cmp_current_time(from) > 0) {
    return "the certificate of tls_certificate is valid only from " + day_of(from) +
           " on: clients refuse it until then";
  }
  return std::nullopt;
}

}  // namespace

Result<TlsFiles> read_tls_files(const Config& config) {
  TlsFiles files;
  ASSIGN_OR_RETURN(files.certificate, read_pem("tls_certificate", config.tls_certificate));
  ASSIGN_OR_RETURN(files.key, read_pem("tls_key", config.tls_key));
  const Certificate certificate(
      PEM_read_bio_X509(reader(files.certificate).get(), nullptr, nullptr, nullptr));
  if (!certificate) {
    return invalid("tls_certificate", config.tls_certificate, "has no certificate in PEM");
  }
  const PrivateKey key(
      PEM_read_bio_PrivateKey(reader(files.key).get(), nullptr, &no_password, nullptr));
  if (!key) {
    return invalid("tls_key", config.tls_key, "has no private key in PEM without a password");
  }
  files.summary =
      subject_of(certificate.get()) + ", until " + day_of(X509_get0_notAfter(certificate.get()));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return invalid("tls_key", config.tls_key,
                   "is not the key of the first certificate in " + config.tls_certificate.string() +
                       " (" + files.summary + ")");
  }
  files.warning = validity_warning(certificate.get());
  return files;
}

Result<std::shared_ptr<grpc::ServerCredentials>> tls_credentials(const Config& config) {
  if (Result<TlsFiles> files = read_tls_files(config); !files.ok()) return std::move(files).error();
  using Watcher = grpc::experimental::FileWatcherCertificateProvider;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<Watcher>(config.tls_key, config.tls_certificate, kReadAgainSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace trainyard::server
