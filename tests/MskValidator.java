import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * MSK's side of IAM for a broker of the tests: the token is a request that was signed with the key that the test's STS
 * gives, for this region, now; the signature (AWS Signature Version 4, in the query) is computed anew and compared.
 */
public class MskValidator implements AuthenticateCallbackHandler {
    private static final Set<String> UNSIGNED = Set.of("X-Amz-Signature", "User-Agent");
    private Map<String, ?> options;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> jaas) {
        options = jaas.get(0).getOptions();
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (!(callback instanceof OAuthBearerValidatorCallback)) throw new UnsupportedCallbackException(callback);
            OAuthBearerValidatorCallback asked = (OAuthBearerValidatorCallback) callback;
            String wrong;
            try {
                wrong = complaint(asked.tokenValue());
            } catch (Exception e) {
                wrong = e.toString();
            }
            if (wrong == null) asked.token(token(asked.tokenValue()));
            else asked.error("invalid_token: " + wrong, null, null);
        }
    }

    private String complaint(String token) throws Exception {
        URI uri = URI.create(new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8));
        Map<String, String> said = new TreeMap<>();
        StringBuilder signed = new StringBuilder();
        Map<String, String> raw = new TreeMap<>();
        for (String pair : uri.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            raw.put(parts[0], parts[1]);
            said.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        raw.forEach((name, value) -> {
            if (!UNSIGNED.contains(name)) signed.append(signed.isEmpty() ? "" : "&").append(name).append("=").append(value);
        });
        String region = options.get("region").toString();
        String at = said.get("X-Amz-Date");
        String scope = at.substring(0, 8) + "/" + region + "/kafka-cluster/aws4_request";
        if (!uri.getHost().equals("kafka." + region + ".amazonaws.com")) return "host " + uri.getHost();
        if (!"kafka-cluster:Connect".equals(said.get("Action"))) return "action";
        if (!(options.get("key") + "/" + scope).equals(said.get("X-Amz-Credential"))) return "credential";
        if (!options.get("session").equals(said.get("X-Amz-Security-Token"))) return "session token";
        Instant from = Instant.from(DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC).parse(at));
        Instant until = from.plusSeconds(Long.parseLong(said.get("X-Amz-Expires")));
        Instant now = Instant.now();
        if (from.isAfter(now.plusSeconds(60)) || until.isBefore(now)) return "time";
        String request = String.join("\n", "GET", "/", signed, "host:" + uri.getHost(), "", "host", hex(hash("")));
        String text = String.join("\n", "AWS4-HMAC-SHA256", at, scope, hex(hash(request)));
        byte[] key = ("AWS4" + options.get("secret")).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) key = mac(key, part);
        return hex(mac(key, text)).equals(said.get("X-Amz-Signature")) ? null : "signature";
    }

    private static byte[] hash(String text) throws Exception {
        return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] mac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static OAuthBearerToken token(String value) {
        long now = System.currentTimeMillis();
        return new OAuthBearerToken() {
            @Override public String value() { return value; }
            @Override public Set<String> scope() { return Set.of(); }
            @Override public long lifetimeMs() { return now + 600_000; }
            @Override public String principalName() { return "msk"; }
            @Override public Long startTimeMs() { return now; }
        };
    }

    @Override
    public void close() {}
}
