// Runs the statements of a file in a mini cluster of two slots: java -cp 'jars/*' Flink.java FILE '{"setting": "value"}'
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

public class Flink {
    public static void main(String[] args) throws Exception {
        Map<?, ?> settings = new ObjectMapper().readValue(args[1], Map.class);
        Configuration configuration = new Configuration();
        settings.forEach((name, value) -> configuration.setString((String) name, (String) value));
        var tables = StreamTableEnvironment.create(
            StreamExecutionEnvironment.createLocalEnvironment(2, configuration));
        settings.forEach((name, value) -> {
            if (((String) name).startsWith("table.")) tables.getConfig().set((String) name, (String) value);
        });
        for (String statement : Files.readString(Path.of(args[0])).split(";\n")) {
            boolean runs = statement.startsWith("INSERT");
            if (runs) {
                System.out.println("START");
                System.out.flush();
            }
            var result = tables.executeSql(statement);
            if (runs) result.await();
        }
    }
}
