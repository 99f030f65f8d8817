#include "transport/byte_stream.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <span>
#include <utility>

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

struct Tls::Contexts {
  Secret secret;
  asio::ssl::context client{asio::ssl::context::tlsv13_client}, server{asio::ssl::context::tlsv13_server};
};

namespace {

constexpr unsigned char kIdentity[] = {'s', 'l', 'u', 'i', 'c', 'e'};
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

int secret_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// A session of the secret, as TLS 1.3 wants an external key (RFC 8446, 4.2.11). Null if there is no memory.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* secret = static_cast<const Secret*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), secret_index()));
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, secret->bytes.data(), secret->bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int use_secret(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* n_identity, SSL_SESSION** session) {
  *session = session_of(ssl);
  *identity = kIdentity;
  *n_identity = sizeof kIdentity;
  return *session != nullptr;
}

int find_secret(SSL* ssl, const unsigned char* identity, size_t n_identity, SSL_SESSION** session) {
  const bool ours = n_identity == sizeof kIdentity && std::memcmp(identity, kIdentity, sizeof kIdentity) == 0;
  *session = ours ? session_of(ssl) : nullptr;
  return !ours || *session != nullptr;
}

void set_up(asio::ssl::context& context, Secret& secret) {
  SSL_CTX* raw = context.native_handle();
  SSL_CTX_set_ex_data(raw, secret_index(), &secret);
  SLUICE_CHECK(SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) == 1, "libssl speaks TLS 1.3");
  SLUICE_CHECK(SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256") == 1, "every libssl has this one");
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_psk_use_session_callback(raw, use_secret);
  SSL_CTX_set_psk_find_session_callback(raw, find_secret);
}

class SocketStream : public ByteStream {
 public:
  void shut() override {
    error_code ignored;
    socket().shutdown(Tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket().close(ignored);
  }
  asio::any_io_executor executor() override { return socket().get_executor(); }
  std::string wanted() const override { return "a sluice of this release, with the same --secret"; }

 private:
  virtual Tcp::socket& socket() = 0;
};

class PlainStream final : public SocketStream {
 public:
  explicit PlainStream(Tcp::socket socket) : socket_(std::move(socket)) {}

  void shake_hands(Side, std::function<void(error_code)> done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer to, Done done) override { socket_.async_read_some(to, std::move(done)); }
  void write(asio::const_buffer from, Done done) override { asio::async_write(socket_, from, std::move(done)); }
  size_t write_at_once(asio::const_buffer from) override {
    const ssize_t n = ::send(socket_.native_handle(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return n > 0 ? static_cast<size_t>(n) : 0;
  }

 private:
  Tcp::socket& socket() override { return socket_; }

  Tcp::socket socket_;
};

class TlsStream final : public SocketStream {
 public:
  TlsStream(Tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  void shake_hands(Side side, std::function<void(error_code)> done) override {
    const auto type = side == Side::kClient ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
    stream_.async_handshake(type, [this, done = std::move(done)](error_code error) {
      // Both know the secret, or there would be no session to resume.
      const bool shared = SSL_session_reused(stream_.native_handle()) == 1;
      if (!error && !shared) error = asio::error::access_denied;
      done(error);
    });
  }
  void read_some(asio::mutable_buffer to, Done done) override { stream_.async_read_some(to, std::move(done)); }
  void write(asio::const_buffer from, Done done) override { asio::async_write(stream_, from, std::move(done)); }

 private:
  Tcp::socket& socket() override { return stream_.next_layer(); }

  asio::ssl::stream<Tcp::socket> stream_;
};

}  // namespace

Tls::Tls(const Secret& secret) : contexts_(std::make_unique<Contexts>()) {
  contexts_->secret = secret;
  set_up(contexts_->client, contexts_->secret);
  // A server that comes with a certificate instead of the secret is nobody that is known.
  SSL_CTX_set_verify(contexts_->client.native_handle(), SSL_VERIFY_PEER, nullptr);
  set_up(contexts_->server, contexts_->secret);
}
Tls::~Tls() { OPENSSL_cleanse(contexts_->secret.bytes.data(), contexts_->secret.bytes.size()); }

std::unique_ptr<ByteStream> make_stream(Tcp::socket socket, Tls* tls, Side side) {
  if (tls == nullptr) return std::make_unique<PlainStream>(std::move(socket));
  auto& contexts = tls->contexts();
  return std::make_unique<TlsStream>(std::move(socket), side == Side::kClient ? contexts.client : contexts.server);
}

}  // namespace sluice
